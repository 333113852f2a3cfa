"""What ends a workflow's code otherwise than by a value or an error: no `Exception`, and not under `BokiError`."""

from __future__ import annotations

import asyncio
from typing import Any, Final


class WorkflowCancelled(asyncio.CancelledError):
    """The workflow was cancelled. Like `asyncio.CancelledError` it is no `Exception`: who catches all errors does not catch it."""


class RestartRequested(BaseException):
    """The workflow begins again (`bokiflow.restart`). Attributes: args, options: of the new run."""

    def __init__(self, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        super().__init__("bokiflow.restart(...) ends this run of the workflow")
        self.run_args: Final = args
        self.options: Final = options
