"""Transactions as the paper has them (§5.2, Figure 8), as an oracle: the log alone decides who committed. Pure; without the library.

A transaction appends a start, and reads as of it; then a commit, with its writes. The commit alone proves nothing: it succeeded unless a
write to one of its objects lies between its start and its commit, and of those only writes that count: plain ones, and those of
transactions that succeeded.

    start A | write Z | start B | commit A X Y | start C | commit B Y Z | commit C X Z
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class TransactionRecord(NamedTuple):
    """One record: "start", "write" or "commit"; of which transaction ("" for a plain write); the objects it writes."""

    kind: str
    transaction: str
    writes: frozenset[str] = frozenset()


def parse(text: str) -> list[TransactionRecord]:
    """A log as above."""
    rows = []
    for cell in text.split("|"):
        kind, *words = cell.split()
        if kind == "write":
            rows.append(TransactionRecord(kind, "", frozenset(words)))
        else:
            rows.append(TransactionRecord(kind, words[0], frozenset(words[1:])))
    return rows


def committed(log: Sequence[TransactionRecord]) -> dict[str, bool]:
    """Of each transaction that ended, whether it succeeded."""
    started: dict[str, int] = {}
    outcome: dict[str, bool] = {}
    for at, row in enumerate(log):
        if row.kind == "start":
            started[row.transaction] = at
        elif row.kind == "commit":
            window = log[started[row.transaction] + 1 : at]
            counting = [one for one in window if one.kind == "write" or outcome.get(one.transaction, False)]
            outcome[row.transaction] = not any(one.kind != "start" and one.writes & row.writes for one in counting)
    return outcome
