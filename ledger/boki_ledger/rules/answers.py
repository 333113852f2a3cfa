"""The three values of an answer about an entry, and what a reader may conclude from several of them. Pure.

*Have*, *never had*, *unknown*. All safety of recovery hangs on keeping the second apart from the third: only NO_LEDGER and
NO_ENTRY say that a bookie never stored the entry. A time-out, a lost connection, an I/O error, limbo, a full bookie, or a
body that fails its digest say nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from boki_common.bookkeeper.status import V2Status


class Answer(Enum):
    """The answer of one bookie about one entry, or about a ledger's last entry."""

    HAVE = "have"
    NEVER_HAD = "never had"
    UNKNOWN = "unknown"

    @property
    def definite(self) -> bool:
        return self is not Answer.UNKNOWN


class Verdict(Enum):
    """What the answers of a write set prove about one entry."""

    PRESENT = "present"
    ABSENT = "absent"
    UNDECIDED = "undecided"


def answer_of(status: V2Status | None) -> Answer:
    """The value of a status; None is *no answer came*. An OK counts only after its body was verified."""
    if status is V2Status.OK:
        return Answer.HAVE
    if status is not None and status.never_had:
        return Answer.NEVER_HAD
    return Answer.UNKNOWN


def entry_verdict(answers: Iterable[Answer], *, write_quorum: int, ack_quorum: int, ask_all: bool = False) -> Verdict:
    """Whether an entry can have been acknowledged, from the answers of its write set (None yet = UNKNOWN).

    One valid copy proves that it exists. (Qw - Qa) + 1 explicit negatives prove that fewer than Qa bookies store it, and, as
    the questions fenced the bookies, that it never will be acknowledged.

    `answers`: one per slot of the write set. `ask_all`: the entry is known to have been acknowledged, so that negatives contradict
    what is known: it counts as absent only if every single bookie denies it.
    """
    negatives = 0
    for answer in answers:
        if answer is Answer.HAVE:
            return Verdict.PRESENT
        negatives += answer is Answer.NEVER_HAD
    needed = write_quorum if ask_all else write_quorum - ack_quorum + 1
    return Verdict.ABSENT if negatives >= needed else Verdict.UNDECIDED
