"""What ends code otherwise than by a value: no `except Exception` catches it."""

from __future__ import annotations

import asyncio

from bokiflow import WorkflowCancelled
from bokiflow.cancellation import RestartRequested


def test_what_ends_a_workflow_is_not_caught_with_errors() -> None:
    for ending in (WorkflowCancelled("x"), RestartRequested((1,), {"a": 2})):
        assert not isinstance(ending, Exception)
    assert isinstance(WorkflowCancelled("x"), asyncio.CancelledError)
    asked = RestartRequested((1,), {"a": 2})
    assert (asked.run_args, asked.options) == ((1,), {"a": 2})
