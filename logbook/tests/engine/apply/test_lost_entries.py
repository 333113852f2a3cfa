"""What LOST commands say of each entry, whichever came first."""

from __future__ import annotations

from boki_logbook.apply.lost_entries import LostEntries
from boki_metalog.entries.metalog_entry import Lost


def test_each_entry_by_what_its_commands_say() -> None:
    known = LostEntries()
    assert not known.joins_nothing(1, 0, 5)
    for command in (Lost(1, 0, 4, 8, b"{}", True), Lost(1, 0, 6, 10, b"{}"), Lost(1, 0, 6, 10, b"{}")):
        known.add(command)
    assert [entry for entry in range(12) if known.joins_nothing(1, 0, entry)] == [6, 7, 8, 9]
    assert [entry for entry in range(12) if known.in_snapshot_only(1, 0, entry)] == [4, 5]
    assert not known.joins_nothing(1, 1, 6) and not known.joins_nothing(2, 0, 6)
    assert len(known.commands) == len(known.of(1, 0)) == 2
