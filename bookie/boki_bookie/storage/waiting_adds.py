"""Adds that cannot be answered in the turn they came in: those that wait for first validation, and repeats of stored entries.

*First validation*: a normal add of a ledger that is not validated waits, unstored, until `validate` answered for its ledger; then it
is added like any other. One question per ledger, however many adds wait for it.

*Repeats*: an add of an entry that the entry log holds is compared with what is read from there; whether a repeat is
accepted is `fence_rules`'s business. Where the held copy is damaged, a recovery add takes its place: whoever recovers or
repairs has verified what it sends, and of what is held nothing is left to contradict it. A copy that only cannot be read
now (an error of the disk) may come back: any add of it is answered as unknown.

Both are bounded; what does not fit is refused with TOO_MANY_REQUESTS. Each add is answered through its `AddAnswers`, once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol

from boki_bookie.entries.ledger_index import Ledger, Place
from boki_bookie.settings import BookieSettings
from boki_bookie.storage.fence_rules import is_repeat
from boki_common import limits
from boki_common.background_tasks import BackgroundTasks
from boki_common.bookkeeper.status import V2Status
from boki_common.bookkeeper.v2 import AddRequest
from boki_common.errors import BokiError, CorruptData, StorageError
from boki_common.logs import get_logger

_REPEATS_AT_ONCE: Final = 256

Validate = Callable[[int], Awaitable[V2Status]]
"""OK when the metadata of the ledger names this bookie and OPEN, else how its normal adds are answered."""

Load = Callable[[Sequence[tuple[int, Place]]], Awaitable[list[memoryview | StorageError]]]
"""Reads stored entries, given as (ledger, place)."""

_log = get_logger("bookie")


class AddAnswers(Protocol):
    """Called with the answers that `Storage.add` could not give at once."""

    def add_answered(self, status: V2Status, ledger_id: int, entry_id: int) -> None: ...


class AddsAgain(Protocol):
    """What is done with adds whose ledger was validated, or whose held copy is damaged: a storage."""

    def add(self, request: AddRequest, answers: AddAnswers) -> V2Status | None: ...

    def note_validated(self, ledger_id: int, master_key: bytes) -> V2Status: ...

    def replace_damaged(self, ledger: Ledger, request: AddRequest) -> V2Status: ...

    def when_durable(self, done: Callable[[BokiError | None], None]) -> bool: ...


class UnvalidatedAdds:
    """Adds of ledgers whose metadata is being read."""

    def __init__(
        self, storage: AddsAgain, validate: Validate, settings: BookieSettings, tasks: BackgroundTasks
    ) -> None:
        self._storage = storage
        self._validate = validate
        self._bytes_limit = settings.validation_waiting_bytes
        self._tasks = tasks
        self._waiting: dict[int, list[tuple[AddRequest, AddAnswers]]] = {}
        self._bytes = 0

    def wait(self, request: AddRequest, answers: AddAnswers) -> V2Status | None:
        """None: `answers` is called later. Else: refused."""
        size = len(request.body)
        waiting = self._waiting.get(request.ledger_id)
        if self._bytes + size > self._bytes_limit:
            return V2Status.TOO_MANY_REQUESTS
        if waiting is None:
            if len(self._waiting) >= limits.BOOKIE_LEDGERS_LOOKED_UP:
                return V2Status.TOO_MANY_REQUESTS
            waiting = self._waiting[request.ledger_id] = []
            self._tasks.spawn(self._look(request.ledger_id), "bookie first validation")
        self._bytes += size
        waiting.append((request, answers))
        return None

    async def _look(self, ledger_id: int) -> None:
        storage = self._storage
        status = await self._validate(ledger_id)
        waiting = self._waiting.pop(ledger_id)
        self._bytes -= sum(len(request.body) for request, _ in waiting)
        if status is V2Status.OK:
            status = storage.note_validated(ledger_id, waiting[0][0].master_key)
        accepted: list[tuple[AddRequest, AddAnswers]] = []
        for request, answers in waiting:
            result = storage.add(request, answers) if status is V2Status.OK else status
            if result is V2Status.OK:
                accepted.append((request, answers))
            elif result is not None:
                answers.add_answered(result, request.ledger_id, request.entry_id)
        if accepted:
            storage.when_durable(partial(_answer_accepted, accepted))


class RepeatedAdds:
    """Adds of entries that are held."""

    def __init__(self, storage: AddsAgain, ledgers: dict[int, Ledger], load: Load, tasks: BackgroundTasks) -> None:
        self._storage = storage
        self._ledgers = ledgers
        self._load = load
        self._tasks = tasks
        self._waiting: list[tuple[AddRequest, AddAnswers]] = []

    def judge(self, ledger: Ledger, request: AddRequest, answers: AddAnswers) -> V2Status | None:
        """OK: the same entry, answer it when durable. None: `answers` is called later. Else: refused."""
        ledger.repeats += 1
        stored = ledger.cached(request.entry_id)
        if stored is not None:
            return _judge(stored, request)
        if len(self._waiting) >= limits.BOOKIE_REPEATS_WAITING:
            return V2Status.TOO_MANY_REQUESTS
        self._waiting.append((request, answers))
        if len(self._waiting) == 1:
            self._tasks.spawn(self._compare(), "bookie repeated adds")
        return None

    async def _compare(self) -> None:
        """Compares repeated adds with what the entry log holds."""
        while self._waiting:
            count = min(len(self._waiting), _REPEATS_AT_ONCE)
            repeats: list[tuple[AddRequest, AddAnswers]] = []
            wanted: list[tuple[int, Place]] = []
            for request, answers in self._waiting[:count]:
                ledger = self._ledgers.get(request.ledger_id)
                place = None if ledger is None else ledger.place(request.entry_id)
                if place is None:  # the ledger was deleted or emptied in the meantime
                    answers.add_answered(V2Status.FENCED, request.ledger_id, request.entry_id)
                else:
                    repeats.append((request, answers))
                    wanted.append((request.ledger_id, place))
            bodies = await self._load(wanted)
            replaced: list[tuple[AddRequest, AddAnswers]] = []
            for (request, answers), body in zip(repeats, bodies, strict=True):
                damaged = isinstance(body, StorageError)
                status = self._replace(request, body) if isinstance(body, StorageError) else _judge(body, request)
                if damaged and status is V2Status.OK:
                    replaced.append((request, answers))
                else:
                    answers.add_answered(status, request.ledger_id, request.entry_id)
            if replaced:
                self._storage.when_durable(partial(_answer_accepted, replaced))
            del self._waiting[:count]

    def _replace(self, request: AddRequest, error: StorageError) -> V2Status:
        """The status of an add of an entry whose stored copy cannot be read. OK: answer it when it is durable."""
        ledger = self._ledgers.get(request.ledger_id)
        if ledger is None:
            return V2Status.FENCED
        stored = ledger.cached(request.entry_id)
        if stored is not None:  # another add replaced it meanwhile
            return _judge(stored, request)
        place = ledger.place(request.entry_id)
        if not isinstance(error, CorruptData) or not request.recovery or place is None:
            return V2Status.IO_ERROR
        if place.body_bytes != len(request.body):
            return _contradicts(place.body_bytes, request)
        return self._storage.replace_damaged(ledger, request)


def _judge(stored: memoryview, request: AddRequest) -> V2Status:
    return V2Status.OK if is_repeat(stored, request.body) else _contradicts(len(stored), request)


def _contradicts(stored_bytes: int, request: AddRequest) -> V2Status:
    _log.error(
        "refused an add that contradicts a held entry: more than one writer uses this ledger",
        ledger_id=request.ledger_id,
        entry_id=request.entry_id,
        held_bytes=stored_bytes,
        sent_bytes=len(request.body),
        recovery=request.recovery,
    )
    return V2Status.BAD_REQUEST


def _answer_accepted(accepted: list[tuple[AddRequest, AddAnswers]], error: BokiError | None) -> None:
    if error is None:
        for request, answers in accepted:
            answers.add_answered(V2Status.OK, request.ledger_id, request.entry_id)
