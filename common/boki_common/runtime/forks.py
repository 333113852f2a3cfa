"""Notifies what must not be used in a forked child that it is a copy.

A child of `os.fork` (a pool of `multiprocessing`, a worker of a web server) has its parent's objects, but neither its threads nor
its event loops; descriptors are shared with it. An object that would wait for one of these for ever registers here, and then refuses.
It may touch nothing that the parent shares: a connection that the child closes is still the parent's.

    forks.watch(self)              # weakly: no need to take it away
    def forked(self) -> None: ...  # called in the child, before anything else runs there
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

from boki_common.errors import ClosedError


class Forkable(Protocol):
    """Has a loop, a thread or a connection that a child of this process lacks."""

    def forked(self) -> None:
        """This process is the child."""


_watched: WeakSet[Forkable] = WeakSet()
_kept: list[Forkable] = []
"""In a child: what is taken apart there would take itself out of the event queue that it shares with its parent."""


def watch(one: Forkable) -> None:
    """Notifies it in each child that is forked while it exists."""
    _watched.add(one)


def opened_elsewhere(what: str) -> ClosedError:
    """The error of a call to the copy."""
    return ClosedError(
        f"{what} was opened in another process (its parent, {os.getppid()}): a child has no connection of its own before it "
        "opens one; connect after the fork"
    )


def _in_child() -> None:
    _kept.extend(_watched)
    for one in _kept:
        one.forked()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_in_child)
