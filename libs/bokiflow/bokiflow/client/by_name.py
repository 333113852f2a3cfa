"""Workflows that are started by their names, also where this program lacks them: a worker that has them runs them."""

from __future__ import annotations

from typing import Any

from bokiflow.errors import NotRegistered
from bokiflow.runtime.calls import Registry, Workflow


def named(app: Registry, name: str) -> Workflow[..., Any]:
    """Return the workflow of this name, or a stand-in that can be started here, and run elsewhere."""
    try:
        return app.find(name)
    except NotRegistered:
        return Workflow(_elsewhere, name, "")


async def _elsewhere(*args: Any, **options: Any) -> Any:
    """A workflow of another program. Workers look for it by its name, so nothing calls this."""
    raise NotRegistered(
        f"expected to start a workflow of another program by its name, found a call with {args} and {options}"
    )
