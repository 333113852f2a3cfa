"""Exhaustive tests of programs on libraries: a crash or a lost answer at each operation, on a cluster in memory.

async def program(book): ...      # the process under test, on any `BookPort`
async def recover(book): ...      # the process that runs after it was killed
async def check(book): ...        # asserts about the result

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
