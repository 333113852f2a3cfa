"""A process that runs transactions on a store until it is killed, and notes each on a file: what a run read, and how it ended.

    python -m itests.store.worker URL FILE FIRST ISOLATION

Lines: `run NUMBER {"key": [values read]} {"key": value appended}` and `end NUMBER committed|refused|unknown`.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from typing import Any, TextIO, cast

import boki
from bokilib.records.isolation import Isolation
from bokistore import BokiStore, StoreSettings, Transaction

BOOK = "histories"
KEYS = 4
NUMBERS_AN_EPOCH = 400
"""After so many transactions other keys are used, so that lists stay short."""
CLIENTS = 4
CARRY_MS = 3_000
GRACE_MS = 8_000


def keys_of(number: int) -> list[str]:
    """The objects that a transaction chooses from."""
    return [f"{number % 1_000_000 // NUMBERS_AN_EPOCH}-{index}" for index in range(KEYS)]


class Worker:
    """One process."""

    def __init__(self, store: BokiStore, notes: TextIO, first: int) -> None:
        self.store = store
        self._notes = notes
        self._next = first
        self._chances = random.Random(first)

    def note(self, *words: object) -> None:
        print(*words, file=self._notes, flush=True)

    async def body(self, tx: Transaction, number: int) -> None:
        read: dict[str, Any] = {}
        keys = self._chances.sample(keys_of(number), 2)
        for key in keys:
            read[key] = await tx[key].get("l", [])
        key = self._chances.choice([*keys, self._chances.choice(keys_of(number))])
        tx[key].push("l", number)
        self.note(
            "run", number, json.dumps(read, separators=(",", ":")), json.dumps({key: number}, separators=(",", ":"))
        )

    async def one(self, number: int) -> str:
        try:
            if self._chances.random() < 0.5:
                await self.store.transact(self.body, number)
            else:
                async with self.store.transaction() as tx:
                    await self.body(tx, number)
        except boki.OutcomeUnknown:
            return "unknown"
        except (boki.Conflict, boki.Trimmed):
            return "refused"
        except boki.BokiError as error:
            return "refused" if error.definite else "unknown"
        return "committed"

    async def client(self) -> None:
        while True:
            number, self._next = self._next, self._next + 1
            self.note("end", number, await self.one(number))


async def main(url: str, path: str, first: int, isolation: str) -> None:
    settings = StoreSettings(isolation=cast(Isolation, isolation), checkpoint_records=25, grace_ms=GRACE_MS)
    with open(path, "a") as notes:
        async with boki.connect(url) as client:
            store = BokiStore(client.book(BOOK), settings=settings)
            async with store.carrier(path, every_s=1.0, carry_ms=CARRY_MS):
                worker = Worker(store, notes, first)
                await asyncio.gather(*(worker.client() for _ in range(CLIENTS)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
