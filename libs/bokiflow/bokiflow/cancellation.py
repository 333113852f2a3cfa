"""What ends a workflow that was cancelled. Like `asyncio.CancelledError` it is no `Exception`, and not under `BokiError`."""

from __future__ import annotations

import asyncio


class WorkflowCancelled(asyncio.CancelledError):
    """The workflow was cancelled. Like `asyncio.CancelledError` it is no `Exception`: who catches all errors does not catch it."""
