"""`boki status`: who is up."""

from __future__ import annotations

from boki_cli.options import CommandGroup


def register(group: CommandGroup) -> None:
    """Adds the commands of this module."""
