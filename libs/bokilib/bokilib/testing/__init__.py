"""Tests of programs on libraries: every crash, every lost answer, a second process anywhere; on a cluster in memory.

async def program(book): ...      # what your process does, on any `BookPort`
async def recover(book): ...      # what the next one does, when it was killed
async def check(book): ...        # asserts what must hold then

await crash_everywhere(program, recover, check, pairs=True)
await crash_everywhere(program, recover, check, kinds=UNKNOWNS)
await start_anywhere(program, recover, check)
"""

from bokilib.testing._explore import CRASHES, UNKNOWNS, Explored, crash_everywhere, start_anywhere, while_alive
from bokilib.testing._faults import Died, Fault, FaultKind, FaultyBook

__all__ = [
    "CRASHES",
    "Died",
    "Explored",
    "Fault",
    "FaultKind",
    "FaultyBook",
    "UNKNOWNS",
    "crash_everywhere",
    "start_anywhere",
    "while_alive",
]
