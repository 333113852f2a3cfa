"""The exceptions that end a workflow's code without a result or an error; neither is an `Exception` or a `BokiError`."""

from __future__ import annotations

import asyncio
from typing import Any, Final


class WorkflowCancelled(asyncio.CancelledError):
    """The workflow was cancelled. Like `asyncio.CancelledError` it is no `Exception`, so `except Exception` does not catch it."""


class RestartRequested(BaseException):
    """The workflow restarts (`bokiflow.restart`).

    Attributes:
        run_args: the arguments of the new run.
        options: the keyword arguments of the new run.
    """

    def __init__(self, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        super().__init__("bokiflow.restart(...) ends this run of the workflow")
        self.run_args: Final = args
        self.options: Final = options


def restart_of(error: BaseException | None) -> RestartRequested | None:
    """Return the restart that an error asks for: it is one, or a group, as of a TaskGroup, of nothing else."""
    if isinstance(error, BaseExceptionGroup):
        found = [restart_of(one) for one in error.exceptions]
        return found[0] if None not in found else None
    return error if isinstance(error, RestartRequested) else None
