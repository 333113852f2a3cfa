"""Coverage against its definition: every ack quorum of every entry meets a bookie that answered."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from boki_ledger.rules.answers import Answer
from boki_ledger.rules.coverage import covered
from boki_ledger.rules.write_set import write_set


def covered_by_definition(answered: tuple[bool, ...], write_quorum: int, ack_quorum: int) -> bool:
    size = len(answered)
    for entry_id in range(size):
        for quorum in combinations(write_set(entry_id, size, write_quorum), ack_quorum):
            if not any(answered[slot] for slot in quorum):
                return False
    return True


@pytest.mark.parametrize("ensemble_size", range(1, 8))
def test_equals_brute_force(ensemble_size: int) -> None:
    for answered in product((True, False), repeat=ensemble_size):
        answers = [Answer.HAVE if one else Answer.UNKNOWN for one in answered]
        for write_quorum in range(1, ensemble_size + 1):
            for ack_quorum in range(1, write_quorum + 1):
                expected = covered_by_definition(answered, write_quorum, ack_quorum)
                assert covered(answers, write_quorum=write_quorum, ack_quorum=ack_quorum) is expected


def test_an_explicit_negative_is_as_good_as_an_entry() -> None:
    answers = [Answer.NEVER_HAD, Answer.HAVE, Answer.UNKNOWN]
    assert covered(answers, write_quorum=3, ack_quorum=2)
    assert not covered([Answer.NEVER_HAD, Answer.UNKNOWN, Answer.UNKNOWN], write_quorum=3, ack_quorum=2)
