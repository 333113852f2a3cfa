"""Workflows as the paper has them (§5.1, Figures 6 and 7), as an oracle over plain logs. Pure; nothing of the library is used.

(a) A step appends a record under its own tag and reads the first one there: that one counts, whoever wrote it. `invoke` does so twice: the
    callee's id before, its result after. A write to the database goes with the place of the record that counts as its version, and only
    over an older one, so it may be repeated.
(b) A lock's record names the holder (E: nobody) and `prev`, the newest record of the chain as its writer saw it. The first record is in the
    chain, and then each whose `prev` is its end. Who is in it holds the lock until a release is.

    E- | a0 | b0 | E1 | c0 | d3 | e3 | E5 | f7 | g7 | E8 | h7
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

EMPTY = "E"


class LockRow(NamedTuple):
    """One record of a lock. `prev`: -1: the writer saw none."""

    holder: str
    prev: int


def parse_lock(text: str) -> list[LockRow]:
    """A log as above."""
    cells = [cell.strip() for cell in text.split("|")]
    return [LockRow(cell[0], -1 if cell[1:] == "-" else int(cell[1:])) for cell in cells]


def chain(log: Sequence[LockRow]) -> list[int]:
    """Places of the records that count (`checkLockState`)."""
    found: list[int] = []
    for at, row in enumerate(log):
        if not found or row.prev == found[-1]:
            found.append(at)
    return found


def holders(log: Sequence[LockRow]) -> list[str]:
    """Who got the lock, in order."""
    return [log[at].holder for at in chain(log) if log[at].holder != EMPTY]


class StepRow(NamedTuple):
    """One record of a workflow. `tag`: (workflow, step), and "pre" or "post" of a call; the paper hashes it."""

    tag: str
    data: str


def parse_steps(text: str) -> list[StepRow]:
    """A log such as `w.0 x=1 | w.1.pre c1 | w.1.post 5`."""
    return [StepRow(*cell.split()) for cell in text.split("|")]


def counting(log: Iterable[StepRow]) -> dict[str, str]:
    """Of each tag the data that counts (`logReadNext(tag, minSeqnum: 0)`)."""
    found: dict[str, str] = {}
    for row in log:
        found.setdefault(row.tag, row.data)
    return found


def database(log: Sequence[StepRow], runs: Iterable[str]) -> dict[str, str]:
    """What a database has after steps (their tags) were run in some order, again and again (`rawDBWrite`)."""
    values: dict[str, tuple[int, str]] = {}
    for tag in runs:
        seqnum = next(at for at, row in enumerate(log) if row.tag == tag)
        key, _, value = log[seqnum].data.partition("=")
        if values.get(key, (-1, ""))[0] < seqnum:
            values[key] = seqnum, value
    return {key: value for key, (_, value) in values.items()}
