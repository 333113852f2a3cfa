"""Exhaustive tests of programs on libraries: a crash, or a lost or late answer, at each operation, on a cluster in memory.

async def program(book): ...      # the process under test, on any `BookPort`
async def recover(book): ...      # the process that runs after it was killed
async def check(book): ...        # asserts about the result

await crash_everywhere(program, recover, check, pairs=True)
await crash_everywhere(program, recover, check, kinds=UNKNOWNS)
await crash_everywhere(program, recover, check, kinds=UNANSWERED)   # in virtual time
await start_anywhere(program, recover, check)

`Cancellations` cancels calls of a program at random while they are in flight.
"""

from bokilib.testing._cancellations import CallCancelled, Cancellations, all_ended, until
from bokilib.testing._explore import (
    CRASHES,
    UNANSWERED,
    UNKNOWNS,
    Explored,
    crash_everywhere,
    start_anywhere,
    while_alive,
)
from bokilib.testing._faults import Died, Fault, FaultKind, FaultyBook

__all__ = [
    "CRASHES",
    "CallCancelled",
    "Cancellations",
    "Died",
    "Explored",
    "Fault",
    "FaultKind",
    "FaultyBook",
    "UNANSWERED",
    "UNKNOWNS",
    "all_ended",
    "crash_everywhere",
    "start_anywhere",
    "until",
    "while_alive",
]
