"""What a process is doing at a moment, as a step of the protocol: for counting which faults met which steps.

It looks at the coroutines that wait inside the process's tasks; the most telling one names the step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from boki_sim.process import SimProcess

STEPS: Final = (
    ("Bookie.start", "bookie starts, replays"),
    ("LedgerRecovery", "ledger recovery"),
    ("change_term", "term change"),
    ("_change_ensemble", "ensemble change"),
    ("Checkpointer.run", "checkpoint"),
    ("Journal._write", "journal write"),
    ("LedgerClient.create", "ledger creation"),
    ("Sequencer._seek", "term change"),
    ("LogFollower", "follows the log"),
    ("TermServer", "orders"),
    ("Connection._reconnect", "SDK reconnects"),
    ("Book.append", "append in flight"),
    ("Reader", "read in flight"),
)
"""Part of a coroutine's name → the step it belongs to; the first that is found tells."""


def activity(process: SimProcess) -> str:
    """The step that a process is in, or "idle"."""
    names = sorted({name for task in process.tasks if not task.done() for name in _chain(task.get_coro())})
    for part, step in STEPS:
        if any(part in name for name in names):
            return step
    return "idle"


def _chain(coroutine: Any) -> Iterator[str]:
    """Names of a coroutine and of all that it waits for."""
    while coroutine is not None:
        name = getattr(coroutine, "__qualname__", None)
        if name is not None:
            yield name
        coroutine = getattr(coroutine, "cr_await", None)
