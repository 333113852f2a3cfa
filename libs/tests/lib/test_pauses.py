"""Pauses between attempts."""

from __future__ import annotations

import pytest

from boki_common.errors import Conflict, Unreachable
from bokilib.pauses import FIRST_S, LIMIT_S, pauses, retried


def test_they_are_short_at_first_and_never_long_and_short_again_after_a_success() -> None:
    pause = pauses()
    found = [pause.next() for _ in range(10)]
    assert found == sorted(found) and (found[0], found[-1]) == (FIRST_S, LIMIT_S)
    pause.reset()
    assert pause.next() == FIRST_S


async def test_a_call_is_repeated_while_its_error_is_retryable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bokilib.pauses.FIRST_S", 0.001)
    errors: list[Exception] = [Unreachable("no engine"), Unreachable("no engine")]

    async def call() -> str:
        if errors:
            raise errors.pop()
        return "answer"

    assert await retried(call) == "answer"
    errors.extend([Conflict("another was faster"), Unreachable("no engine")])
    with pytest.raises(Conflict):
        await retried(call)
    assert not errors
