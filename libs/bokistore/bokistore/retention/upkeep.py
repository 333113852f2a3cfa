"""Background work of a store: checkpoints of objects that this process sees grow, rewrites for all processes, and expiry.

Correctness does not depend on it: work that one process leaves undone is done by the next one that reads the object.

An object with an expiry time is entered into a collection that no user can name, as `<at_ms>/<name>`; a sweep reads that collection. If the
object has got another time since, or no longer exists, the entry is dropped when it is due.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

from boki_common.errors import BokiError
from boki_common.logs import get_logger
from bokilib.append.log import Read
from bokilib.records.conflict_rules import Expected
from bokilib.records.tags import bucket_of
from bokilib.stacks import described, stack_of
from bokistore.commit.group_commit import GroupCommit
from bokistore.commit.transactions import Transaction
from bokistore.model.directory_rules import SEPARATOR, TIMES, Directory, Subject, of_bucket, subjects_of
from bokistore.model.events import LIBRARY, PICKER, AnyEvent, Entry
from bokistore.model.fold import View
from bokistore.retention.checkpointer import Checkpointer

log = get_logger(__name__)

DUE_SUBJECTS: Final = 4_096
"""Subjects that wait for a checkpoint of this process; others are noted again when they are read."""
SWEPT_AT_ONCE: Final = 10_000
"""Entries of one sweep; the next sweep continues."""


class Upkeep:
    """Checkpoints that are due, made one after the other."""

    def __init__(self, checkpointer: Checkpointer, *, records: int, size: int, on: bool) -> None:
        self._checkpointer = checkpointer
        self._records = records
        self._size = size
        self._on = on
        self._due: dict[Subject, None] = {}
        self._entered: Counter[Subject] = Counter()
        self._task: asyncio.Task[None] | None = None

    def saw(self, view: View) -> None:
        """Note an object that was folded or has changed."""
        if view.records >= self._records or view.size >= self._size:
            self._note(Subject(view.name))

    def saw_directory(self, directory: Directory) -> None:
        """Note a bucket that was folded."""
        if directory.records >= self._records or directory.size >= self._size:
            self._note(of_bucket(directory.collection, directory.bucket))

    def committed(self, events: Iterable[AnyEvent]) -> None:
        """Count names in committed events: a process that only creates names never folds their directory."""
        if not self._on:
            return
        for event in events:
            if isinstance(event, Entry):
                subject = of_bucket(event.collection, bucket_of(event.id))
                self._entered[subject] += 1
                if self._entered[subject] >= self._records:
                    self._note(subject)
        if len(self._entered) > DUE_SUBJECTS:
            self._entered.clear()

    def _note(self, subject: Subject) -> None:
        if not self._on:
            return
        self._entered.pop(subject, None)
        if len(self._due) < DUE_SUBJECTS:
            self._due[subject] = None
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done() or self._task.get_loop() is not loop:
            self._task = loop.create_task(self._tend(), name="bokistore checkpoints")

    async def _tend(self) -> None:
        while self._due:
            subject = next(iter(self._due))
            try:
                await self.tend(subject)
            except BokiError:
                pass  # the next read notes it again
            except Exception as error:  # noqa: BLE001 - no caller awaits this task: it is logged, and others are tended
                log.error(
                    "checkpoint not made: a defect", subject=str(subject), error=described(error), stack=stack_of(error)
                )
            self._due.pop(subject, None)

    async def tend(self, subject: Subject) -> int:
        """Make a checkpoint, unless another process was faster, and trim what it replaces; return its place."""
        made = await self._checkpointer.checkpoint_subject(subject, records=self._records, size=self._size)
        if made:
            await self._checkpointer.remove_old([subject])
        return made

    async def close(self) -> None:
        """Wait for running checkpoints."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)


class StoreCarried:
    """Rewrites of a store's state into new terms: all of it, since no part has an owner. Implements `bokilib.retention.carrier.Carries`."""

    def __init__(self, checkpointer: Checkpointer, tend: Callable[[], Awaitable[object]]) -> None:
        self._checkpointer = checkpointer
        self._tend = tend
        self._subjects: dict[Subject, None] = {}

    @property
    def library(self) -> str:
        return LIBRARY

    def collect(self, read: Read) -> int:
        self._subjects |= dict.fromkeys(subjects_of(PICKER.of(read.record.seqnum, read.envelope)))
        return len(self._subjects)

    async def carry(self, now_ms: int, fence: Expected, *, carry_ms: int) -> tuple[int, int]:
        subjects, self._subjects = list(self._subjects), {}
        before = self._checkpointer.unreadable
        carried = await self._checkpointer.carry(subjects, now_ms, fence, carry_ms=carry_ms)
        unreadable = self._checkpointer.unreadable - before
        await self._checkpointer.remove_old(subjects, now_ms)
        return carried, unreadable

    async def tend(self) -> None:
        await self._tend()


# -- expiry


async def sweep_all(commits: GroupCommit, now_ms: int) -> list[str]:
    """Delete expired objects; return their names."""
    entries = [id for directory in await commits.views.directories(TIMES) for id in directory.ids]
    due = sorted(
        (int(at_ms), name) for at_ms, _, name in (id.partition(SEPARATOR) for id in entries) if int(at_ms) <= now_ms
    )
    swept = []
    for at_ms, name in due[:SWEPT_AT_ONCE]:
        if await commits.run(partial(_sweep, name, at_ms)):
            swept.append(name)
    return swept


async def _sweep(name: str, at_ms: int, tx: Transaction) -> bool:
    """Drop an entry, and delete the object if this is still its time; return whether it was deleted."""
    view = await tx.view(name)
    tx.enter(TIMES, f"{at_ms}{SEPARATOR}{name}", there=False)
    if not view.exists or view.expires_ms != at_ms:
        return False
    await delete_with_entry(tx, name)
    return True


async def delete_with_entry(tx: Transaction, name: str) -> None:
    """Delete an object, and remove its name from its collection."""
    collection, _, id = name.partition(SEPARATOR)
    if collection and id and id in await tx.bucket(of_bucket(collection, bucket_of(id))):
        tx.enter(collection, id, there=False)
    tx.delete(name)
