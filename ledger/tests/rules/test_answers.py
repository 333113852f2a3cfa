"""Three values, and nothing but an explicit negative is one."""

from __future__ import annotations

from itertools import product

import pytest

from boki_common.bookkeeper.status import V2Status
from boki_ledger.rules.answers import Answer, Verdict, answer_of, entry_verdict

H, N, U = Answer.HAVE, Answer.NEVER_HAD, Answer.UNKNOWN


@pytest.mark.parametrize("status", list(V2Status))
def test_only_no_ledger_and_no_entry_are_negative(status: V2Status) -> None:
    expected = {V2Status.OK: H, V2Status.NO_LEDGER: N, V2Status.NO_ENTRY: N}.get(status, U)
    assert answer_of(status) is expected


def test_no_answer_is_unknown() -> None:
    assert answer_of(None) is U


@pytest.mark.parametrize(("write_quorum", "ack_quorum"), [(w, a) for w in range(1, 6) for a in range(1, w + 1)])
def test_absent_means_that_no_ack_quorum_can_hold_the_entry(write_quorum: int, ack_quorum: int) -> None:
    for answers in product((H, N, U), repeat=write_quorum):
        verdict = entry_verdict(answers, write_quorum=write_quorum, ack_quorum=ack_quorum)
        if H in answers:
            assert verdict is Verdict.PRESENT
        elif write_quorum - answers.count(N) < ack_quorum:
            assert verdict is Verdict.ABSENT
        else:
            assert verdict is Verdict.UNDECIDED


def test_an_entry_known_to_be_acknowledged_is_absent_only_if_all_deny_it() -> None:
    assert entry_verdict((N, N, U), write_quorum=3, ack_quorum=2, ask_all=True) is Verdict.UNDECIDED
    assert entry_verdict((N, N, N), write_quorum=3, ack_quorum=2, ask_all=True) is Verdict.ABSENT
    assert entry_verdict((N, N, H), write_quorum=3, ack_quorum=2, ask_all=True) is Verdict.PRESENT
