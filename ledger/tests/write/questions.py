"""Questions of a writer to scripted bookies whether anybody fenced its ledger, and what the tests of them have in common."""

from __future__ import annotations

from collections import Counter

from boki_ledger.testing.held_messages import Hold
from boki_ledger.testing.ledgers import Ledgers, turns
from boki_ledger.write.writer import LedgerWriter


class Question:
    """Asks a writer at once; `replies` are its answers."""

    def __init__(self, writer: LedgerWriter) -> None:
        self.replies: list[bool] = []
        self.taken = writer.ask_unfenced(self.replies.append)


async def ask(writer: LedgerWriter) -> Question:
    """A question, once everything happened that can without time passing."""
    question = Question(writer)
    await turns()
    return question


def sent(ledgers: Ledgers) -> Counter[tuple[str, int]]:
    """How often which (bookie, entry) was sent since `seen` was cleared."""
    return Counter((one.bookie, one.entry_id) for one in ledgers.bookies.seen if one.kind == "add" and not one.answer)


def pass_on(held: Hold, *, entry_id: int | None = None) -> None:
    """Lets one message travel: the oldest that is kept, of an entry."""
    at = next(index for index, (one, _) in enumerate(held.kept) if entry_id in (None, one.entry_id))
    held.kept.pop(at)[1]()


async def recovered(ledgers: Ledgers, writer: LedgerWriter) -> int:
    reader = await (await ledgers.other_client()).open(writer.ledger_id, recover=True)
    return reader.last_entry


async def first_entry(ledgers: Ledgers) -> LedgerWriter:
    """A writer of three bookies, whose entry 0 all of them acknowledged."""
    writer = await ledgers.client.create()
    await writer.append(b"0")
    await turns()
    ledgers.bookies.seen.clear()
    return writer
