"""Tables of the real `bokiflow.tables` against plain lists, by random seeds.

Several processes append numbers to lists in JSON cells of a few rows, by transactions that change in place what they read, and again after
they put it; so does who reads outside of transactions. Bodies fail by chance, lose conflicts and are cancelled, answers are late or lost,
processes die, tables are settled. In the end, of each row:

- the list has the number of each transaction that returned once, of each that failed never, and of those without an answer at most once;
- a transaction that returned read exactly the numbers before its own, and each other read a beginning of the list;
- all processes, the database and one that begins now have the same list, and nothing has what was changed in place.

    .venv/bin/python -m libs.tests.oracles.tables_run --first 1 --seeds 3000
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from functools import partial
from typing import Any, Final, NamedTuple

from boki.testing import MemoryCluster
from boki_common.errors import BokiError, Conflict
from boki_common.testing.machine import SeededRandom
from bokiflow.tables import MemoryTables, Schema, Tables, Transaction
from bokilib import Log
from bokilib.errors import AppendUnknown
from bokilib.testing import CallCancelled, Cancellations
from libs.tests.oracles.rough_book import CALM, WEATHERS, RoughBook, Weather
from libs.tests.oracles.seeds import main

BOOK: Final = "t"
TABLE: Final = Schema("lists", {"l": "json", "length": "int"})
KEYS: Final = ("a", "b", "c")
PROCESSES: Final = 3
CALLS: Final = 25
"""Calls of each process."""
CANCELLED: Final = (0, 4, 10)
STRAY: Final = -1
"""What is put into lists in place, and must not be anywhere."""


class FailsByChance(Exception):
    """Raised by a body: nothing was committed."""


class Read(NamedTuple):
    """What a row's list was. `number`: that of the transaction that read it and returned, or 0."""

    key: str
    numbers: tuple[int, ...]
    number: int = 0


class Process:
    """One process: tables with a cache of their own, on a book that lives rough."""

    def __init__(self, book: RoughBook, tables: Tables) -> None:
        self.book: Final = book
        self.tables: Final = tables


class World:
    """One seed. `returned`, `unknown`: numbers of transactions, by row."""

    def __init__(self, cluster: MemoryCluster, seed: int) -> None:
        self.chances: Final = random.Random(seed)
        self.port: Final = MemoryTables()
        self.returned: Final[Counter[tuple[str, int]]] = Counter()
        self.unknown: Final[Counter[tuple[str, int]]] = Counter()
        self.reads: Final[list[Read]] = []
        self.counted: Counter[str] = Counter()
        self.cancels: Final = Cancellations(
            SeededRandom(self.chances.randrange(1 << 30)), one_in=self.chances.choice(CANCELLED)
        )
        self._numbers = 0
        self._cluster: Final = cluster
        self._weather: Final[Weather] = self.chances.choice(WEATHERS)

    async def process(self, weather: Weather) -> Process:
        book = RoughBook((await self._cluster.connect()).book(BOOK), random.Random(self.chances.random()), weather)
        tables = Tables(Log(book), self.port, cached_rows=self.chances.choice((0, 1, 100)))
        await tables.open(TABLE)
        return Process(book, tables)

    async def work(self) -> None:
        """Call from one process after the other."""
        chances, process = self.chances, await self.process(CALM)
        for _ in range(CALLS):
            await asyncio.sleep(chances.random())
            if chances.random() < 0.05:
                process.book.die()
                process = await self.process(self._weather)
                self.counted["deaths"] += 1
            key, drawn = chances.choice(KEYS), chances.random()
            try:
                if drawn < 0.7:
                    await self._add(process, key)
                elif drawn < 0.95:
                    await self.cancels.call(partial(self._look, process, key))
                else:
                    await self.cancels.call(partial(process.tables.settle, TABLE.name))
            except (FailsByChance, Conflict, CallCancelled, AppendUnknown) as error:
                self.counted[type(error).__name__] += 1

    async def _add(self, process: Process, key: str) -> None:
        """Append a number to the list of a row."""
        chances = self.chances
        self._numbers += 1
        number, fails = self._numbers, chances.random() < 0.15
        read: tuple[int, ...] = ()

        async def body(tx: Transaction) -> None:
            nonlocal read
            row: Any = await tx.get(TABLE.name, key) or {"l": [], "length": 0}
            read = tuple(row["l"])
            row["l"].append(number)
            tx.put(TABLE.name, key, {**row, "length": len(row["l"])})
            row["l"].append(STRAY)
            if chances.random() < 0.3:
                again: Any = await tx.get(TABLE.name, key)
                assert again["l"] == [*read, number], f"a transaction put {[*read, number]}, and read {again}"
                again["l"].append(STRAY)
            await asyncio.sleep(chances.choice((0, 0.1)))
            if fails:
                raise FailsByChance

        try:
            await self.cancels.call(partial(process.tables.transact, body))
        except (FailsByChance, Conflict):
            raise
        except BokiError as error:
            if not error.definite:
                self.unknown[key, number] += 1
            raise
        self.returned[key, number] += 1
        self.reads.append(Read(key, read, number))

    async def _look(self, process: Process, key: str) -> None:
        """Read a list, and change it in place."""
        row: Any = await process.tables.get(TABLE.name, key) or {"l": []}
        self.reads.append(Read(key, tuple(row["l"])))
        row["l"].append(STRAY)

    async def run(self) -> None:
        """Let all processes work; compare what they read with what is there in the end."""
        async with asyncio.TaskGroup() as group:
            for _ in range(PROCESSES):
                group.create_task(self.work())
        last: dict[str, tuple[int, ...]] = {}
        for _ in range(2):
            process = await self.process(CALM)
            for key in KEYS:
                row: Any = await process.tables.get(TABLE.name, key) or {"l": [], "length": 0}
                assert row["length"] == len(row["l"]), f"row {key} is {row}: its cells are of two transactions"
                assert last.setdefault(key, tuple(row["l"])) == tuple(row["l"]), f"row {key} was {last[key]}, now {row}"
            await process.tables.settle(TABLE.name)
        self._check(last)

    def _check(self, last: dict[str, tuple[int, ...]]) -> None:
        for key, numbers in last.items():
            times = Counter(numbers)
            for number in range(1, self._numbers + 1):
                least, most = self.returned[key, number], self.returned[key, number] + self.unknown[key, number]
                assert least <= times[number] <= most, (
                    f"row {key} has {number} {times[number]} times, not {least} to {most}"
                )
            assert times[STRAY] == 0, f"row {key} has what was changed in place: {numbers}"
        for read in self.reads:
            there = last[read.key]
            found = (*read.numbers, read.number) if read.number else read.numbers
            assert there[: len(found)] == found, f"row {read.key} was read as {found}, and is {there}"
        self.counted.update({"committed": sum(self.returned.values()), "reads": len(self.reads)})


async def run(seed: int) -> Counter[str]:
    """One seed: everybody works, then what was read is compared with what is there."""
    async with MemoryCluster() as cluster:
        world = World(cluster, seed)
        await world.run()
    return world.counted


if __name__ == "__main__":
    sys.exit(main(run))
