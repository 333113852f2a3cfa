"""Quorum coverage: when enough bookies are fenced that no add can be acknowledged any more. Pure.

Invariant to establish: *every* possible ack quorum contains a bookie that answered a fencing request. An ack quorum of an
entry is any Qa of the Qw slots in its write set, and write sets are the windows of Qw consecutive slots of the ring. So the
ledger is covered when in every window fewer than Qa slots are unknown, which is the same as (Qw - Qa) + 1 definite answers.
"""

from __future__ import annotations

from collections.abc import Sequence

from boki_ledger.rules.answers import Answer
from boki_ledger.rules.write_set import write_sets


def covered(answers: Sequence[Answer], *, write_quorum: int, ack_quorum: int) -> bool:
    """Whether the definite answers, one per slot of the ensemble (UNKNOWN where none came), meet every ack quorum."""
    for window in write_sets(len(answers), write_quorum):
        if sum(not answers[slot].definite for slot in window) >= ack_quorum:
            return False
    return True
