"""Connections to bookies.

`bookie_directory` knows their addresses, `bookie_client` has a `bookie_link` to each (`v3_link` speaks version 3), made anew by
`link_life`; `introduction` shows the token, `bookie_health` and its quarantine decide whom to choose for new ledgers.
"""
