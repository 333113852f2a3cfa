"""Several data directories as one store: each is a whole `Storage` with a journal of its own, and a ledger lies in one.

One journal to one store: so a checkpoint of one directory never speaks for another, which is how data was lost elsewhere
(apache/bookkeeper#3329, PR #4844). Where a ledger lies follows from its id and the number of directories, for ever; the
identity of the bookie holds that number and the order (`identity`).

- An acknowledgement waits for every directory with writes under way: a batch may have entries in each.
- A directory that is full takes no normal adds for its own ledgers; the others go on.
- One that fails ends the bookie: part of its ledgers cannot be answered for.

With one directory there is no router: the server has the `Storage` itself, which is the same to it (`Store`). What is asked of one
ledger is asked of the storage that `of` returns.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Sequence

import crc32c as _crc32c

from boki_bookie.entries.ledger_index import Place
from boki_bookie.journal.journal_queue import Done
from boki_bookie.storage.storage import Storage
from boki_common.errors import BokiError, StorageError


def directory_of(ledger_id: int, directories: int) -> int:
    """Which directory holds a ledger. Never to be changed: what is stored lies where this says."""
    return _crc32c.crc32c(ledger_id.to_bytes(8, "big")) % directories


class _Countdown:
    """Calls `done` once: when all have called, or with the first error."""

    __slots__ = ("_done", "_left")

    def __init__(self, count: int, done: Done) -> None:
        self._left = count
        self._done = done

    def one(self, error: BokiError | None) -> None:
        if self._left <= 0:
            return
        self._left = 0 if error is not None else self._left - 1
        if self._left == 0:
            self._done(error)


class _Journals:
    """The journals of all directories."""

    def __init__(self, storages: Sequence[Storage]) -> None:
        self._storages = storages

    def when_durable(self, done: Done) -> None:
        """Calls `done` once all that was appended so far, anywhere, is durable."""
        countdown = _Countdown(len(self._storages), done)
        for storage in self._storages:
            storage.journal.when_durable(countdown.one)


class StorageRouter:
    """See the module. Over the storages in the order of their directories, which are closed by whoever opened them."""

    def __init__(self, storages: Sequence[Storage]) -> None:
        assert len(storages) > 1, "a single storage needs no router"
        self.storages = tuple(storages)
        self.journal = _Journals(self.storages)
        self.failed: asyncio.Future[BokiError] = asyncio.get_running_loop().create_future()
        for storage in self.storages:
            storage.failed.add_done_callback(self._one_failed)

    def of(self, ledger_id: int) -> Storage:
        """The storage that a ledger lies in; any for an id that cannot be."""
        return self.storages[directory_of(max(ledger_id, 0), len(self.storages))]

    @property
    def read_only(self) -> bool:
        """Whether any directory takes no normal adds: new ledgers should go elsewhere then."""
        return any(storage.read_only for storage in self.storages)

    @property
    def cached_bytes(self) -> int:
        return sum(storage.cached_bytes for storage in self.storages)

    @property
    def file_bytes(self) -> int:
        return sum(storage.file_bytes for storage in self.storages)

    @property
    def ledger_count(self) -> int:
        return sum(storage.ledger_count for storage in self.storages)

    @property
    def ledger_ids(self) -> Iterable[int]:
        return itertools.chain.from_iterable(storage.ledger_ids for storage in self.storages)

    # -- many ledgers

    def bodies_at_hand(self, wanted: Sequence[tuple[int, int]], room: int) -> list[memoryview | None]:
        bodies: list[memoryview | None] = []
        for one in wanted:
            if room <= 0:
                break
            (body,) = self.of(one[0]).bodies_at_hand((one,), room)
            bodies.append(body)
            room -= 0 if body is None else len(body)
        return bodies

    def when_durable(self, done: Done) -> bool:
        """Calls back when the adds taken so far, anywhere, may be acknowledged; whether any write cache is too full."""
        countdown = _Countdown(len(self.storages), done)
        too_full = [storage.when_durable(countdown.one) for storage in self.storages]  # all of them are to be asked
        return any(too_full)

    async def load(self, wanted: Sequence[tuple[int, Place]]) -> list[memoryview | StorageError]:
        """Bodies in order, read from all directories at once."""
        parts: dict[Storage, list[int]] = {}
        for at, (ledger_id, _) in enumerate(wanted):
            parts.setdefault(self.of(ledger_id), []).append(at)
        loaded = await asyncio.gather(*(storage.load([wanted[at] for at in ats]) for storage, ats in parts.items()))
        found: dict[int, memoryview | StorageError] = {}
        for ats, bodies in zip(parts.values(), loaded, strict=True):
            found.update(zip(ats, bodies, strict=True))
        return [found[at] for at in range(len(wanted))]

    def _one_failed(self, failed: asyncio.Future[BokiError]) -> None:
        if not self.failed.done() and not failed.cancelled():
            self.failed.set_result(failed.result())


Store = Storage | StorageRouter
"""What the server and the administration have."""
