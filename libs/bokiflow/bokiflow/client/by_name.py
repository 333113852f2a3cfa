"""Workflows started by name: this program need not have their code, since a worker that has it runs them."""

from __future__ import annotations

from typing import Any

from bokiflow.errors import NotRegistered
from bokiflow.runtime.calls import Registry, Workflow


def named(app: Registry, name: str) -> Workflow[..., Any]:
    """Return the workflow of this name, or a stand-in that can be started here and runs in another process."""
    try:
        return app.find(name)
    except NotRegistered:
        return Workflow(_elsewhere, name, "")


async def _elsewhere(*args: Any, **options: Any) -> Any:
    """Stand in for a workflow of another program. Workers find its code by name, so this is never called."""
    raise NotRegistered(
        f"expected to start a workflow of another program by its name, found a call with {args} and {options}"
    )
