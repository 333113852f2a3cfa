"""Entry ids named by the caller equal a plain model: everything once, in order, nothing over a hole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.errors import InvalidArgument, Overloaded
from boki_ledger.write.caller_ids import CallerIds


def roomy() -> CallerIds[int]:
    return CallerIds(7, entries_limit=1_000, bytes_limit=10**9)


@given(st.lists(st.integers(-2, 30)))
def test_equals_a_model_that_keeps_a_set(asked: list[int]) -> None:
    ids = roomy()
    given_ids: set[int] = set()
    sent: list[int] = []
    for entry_id in asked:
        if entry_id < 0 or entry_id in given_ids:
            with pytest.raises(InvalidArgument, match=str(entry_id)):
                ids.take(entry_id, entry_id, 1)
            continue
        ids.take(entry_id, entry_id, 1)
        given_ids.add(entry_id)
        while (due := ids.due()) is not None:
            ids.sent()
            sent.append(due)
    prefix = next(number for number in range(100) if number not in given_ids)
    assert sent == list(range(prefix)) and ids.next == prefix
    beyond = sorted(one for one in given_ids if one > prefix)
    assert ids.items() == beyond
    assert ids.gap() == (range(prefix, beyond[0]) if beyond else None)


def test_what_waits_is_bounded_and_what_is_due_is_always_taken() -> None:
    ids: CallerIds[str] = CallerIds(7, entries_limit=2, bytes_limit=100)
    ids.take(1, "b", 10)
    ids.take(2, "c", 10)
    with pytest.raises(Overloaded, match="wait for entry 0"):
        ids.take(3, "d", 10)
    ids.take(0, "a", 10)
    for expected in "abc":
        assert ids.due() == expected
        ids.sent()
    ids.take(5, "large", 1_000)
    with pytest.raises(Overloaded):
        ids.take(6, "more", 1)
    ids.take(3, "d", 500)
    assert ids.due() == "d"
