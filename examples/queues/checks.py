"""What has to be true of the messages in the end. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class ProducerNotes(NamedTuple):
    """What producers noted: what they were about to push, and what had its place."""

    asked: frozenset[str]
    acknowledged: frozenset[str]


def read(lines: Iterable[str]) -> ProducerNotes:
    """Of the lines of their files."""
    marks = [line.split(" ", 1) for line in lines if line]
    return ProducerNotes(
        frozenset(id for mark, id in marks if mark == "?"), frozenset(id for mark, id in marks if mark == "!")
    )


def check(notes: ProducerNotes, done: Sequence[str], waiting: int) -> list[str]:
    """Sentences about what is wrong; none."""
    faults = [f"{waiting} messages wait still"] if waiting else []
    counts = Counter(done)
    faults += [f"message {id} was handled {count} times" for id, count in sorted(counts.items()) if count > 1]
    faults += [f"message {id} was acknowledged, and is lost" for id in sorted(notes.acknowledged - counts.keys())]
    return faults + [f"nobody pushed message {id}" for id in sorted(counts.keys() - notes.asked)]
