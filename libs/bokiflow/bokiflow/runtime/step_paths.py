"""Names of what a workflow does, which are the same in every replay, on every version of Python. Pure.

- The root task is `0`. A task that task `p` makes is `p/k`: it is the k-th that `p` made, counted from 1.
- A step, child, timer, signal's receipt or random number has the key `path:n`: it is the n-th call in its task.
- A task that only stands for its maker (that of `asyncio.wait_for` in Python 3.11) *is* its maker: the same counters.
- After a restart names begin `r<run>/`, so that they are not those of the run before.
"""

from __future__ import annotations

from typing import Final


class TaskPath:
    """One task's name, and its counters."""

    __slots__ = ("calls", "path", "tasks")

    def __init__(self, path: str) -> None:
        self.path: Final = path
        self.tasks = 0
        self.calls = 0

    @classmethod
    def root(cls, run: int = 0) -> TaskPath:
        """The first task of a run."""
        return cls(f"r{run}/0" if run else "0")

    def child(self) -> TaskPath:
        """The name of the next task that this one makes."""
        self.tasks += 1
        return TaskPath(f"{self.path}/{self.tasks}")

    def key(self) -> str:
        """The name of the next call in this task."""
        self.calls += 1
        return f"{self.path}:{self.calls}"
