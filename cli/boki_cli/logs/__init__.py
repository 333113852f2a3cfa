"""Commands about logs and ledgers: list, show, verify, repair, give up."""
