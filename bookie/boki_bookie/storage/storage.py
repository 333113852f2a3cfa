"""The store of one bookie: adds and fences over journal, write cache, entry log and index. Reads: `storage_reads`.

An add goes into the journal's queue and into the write cache, in the same turn; the caller answers when `when_durable`
calls back. So an entry may be read before it is durable (plain reads stop at the LAC, which covers only acknowledged
entries); a fencing read waits for `journal.when_durable` before it looks, whatever it will find.

Back-pressure, by the bytes in the write cache (`write_cache_bytes`):

    from 1/2   a checkpoint runs, slowly, and faster the fuller it gets (`disk_pace`)
    from 3/4   each acknowledgement is held until as much was stored as it is above: writers' windows fill, they slow down
    full       adds are refused with TOO_MANY_REQUESTS

A full disk makes the bookie *read-only*: normal adds are refused, reads, fences and recovery adds go on in what is left of
the journal and of the reserve, and so do control entries, up to a bound (`disk_room`). It ends by itself when there is space again.
A bookie that *drains* refuses recovery adds, control entries and holds as well: what it holds only gets less.

*First validation*: a normal add of a ledger that is not validated waits, unstored, until `validate` answered for the ledger.

A ledger that garbage collection deleted leaves a tombstone: no add, no fence and no LAC makes it again.

Hot path: `add` makes no object but the dict slot of the entry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Final

from boki_bookie.begin.journal_apply import replay_journal
from boki_bookie.begin.journal_replay import JournalReplay
from boki_bookie.entries.checkpoint import Checkpointer
from boki_bookie.entries.checkpoint_loop import CheckpointLoop
from boki_bookie.entries.ledger_digests import LedgerDigests
from boki_bookie.entries.ledger_index import CACHED_OVERHEAD_BYTES, HELD_FOR_GOOD, Ledger
from boki_bookie.formats.journal_format import LedgerRecord, RecordKind, encode_hold, encode_ledger, encode_ledger_id
from boki_bookie.journal.disk_pace import CheckpointPace
from boki_bookie.journal.journal import Journal
from boki_bookie.journal.journal_queue import Done
from boki_bookie.journal.journal_segments import SegmentFiles
from boki_bookie.settings import BookieSettings
from boki_bookie.space.disk_reserve import DiskReserve
from boki_bookie.space.disk_room import DiskRoom
from boki_bookie.space.file_collection import GcParts
from boki_bookie.space.garbage_collection import GarbageCollector, GcState
from boki_bookie.space.ledger_facts import LedgerFacts
from boki_bookie.storage.fence_rules import AddVerdict, FenceVerdict, decide_add, decide_fence
from boki_bookie.storage.limbo import Limbo, LimboValidation
from boki_bookie.storage.storage_reads import StorageReads
from boki_bookie.storage.waiting_adds import AddAnswers, RepeatedAdds, UnvalidatedAdds, Validate
from boki_common.background_tasks import BackgroundTasks
from boki_common.bookkeeper.status import V2Status
from boki_common.bookkeeper.v2 import AddRequest, AddRun
from boki_common.errors import BokiError, DiskFull, InvalidArgument, Overloaded, StorageError
from boki_common.limits import KIB
from boki_common.logs import get_logger
from boki_common.metrics import Metrics
from boki_common.runtime.ports import Clock, Disk, Random

SUMMED_BODY_BYTES: Final = 64 * KIB
"""On average, from which size on the sums of bodies are worth to be kept: journal and entry log then do not read them again."""
_ENTRY: Final = int(RecordKind.ENTRY)
_REPLACED: Final = int(RecordKind.REPLACED)

_log = get_logger("bookie")


class Storage(StorageReads):
    """See the module. Made by `open`, after `format` once in the life of a directory."""

    def __init__(
        self,
        disk: Disk,
        checkpointer: Checkpointer,
        journal: Journal,
        validate: Validate,
        settings: BookieSettings,
        metrics: Metrics,
        digests: LedgerDigests | None,
        limbo: Limbo | None,
        disk_full: asyncio.Event,
    ) -> None:
        super().__init__(checkpointer.index, checkpointer.entry_log, limbo)
        self.read_only = False
        self.drains = False
        """All adds are refused, those of recovery and repair too: the bookie is being drained."""
        self.room = DiskRoom()
        """What adds may take until the disk is looked at again."""
        self.journal = journal
        self.failed: asyncio.Future[BokiError] = asyncio.get_running_loop().create_future()
        self._disk_full = disk_full
        self._checkpointer = checkpointer
        self._tombstones = self._index.tombstones
        self._disk = disk
        self._collector: GarbageCollector | None = None
        self._cache_limit = settings.write_cache_bytes
        pace = CheckpointPace(settings.write_cache_bytes)
        self._slow_above = pace.slows_at
        self._checkpoint_above = pace.begins_at
        self._segments_limit = settings.journal_live_segments
        self._settings = settings
        self._digests = digests
        self._closing = False
        self._tasks = BackgroundTasks()
        self._unvalidated = UnvalidatedAdds(self, validate, settings, self._tasks)
        self._repeats = RepeatedAdds(self, self._ledgers, self.load, self._tasks)
        self._checkpoints = CheckpointLoop(self, checkpointer, journal, pace, settings, metrics)
        journal.failed.add_done_callback(self._journal_failed)

    @property
    def cached_bytes(self) -> int:
        """Bytes of entries in memory that no checkpoint has stored."""
        return self._index.cached_bytes

    @property
    def file_bytes(self) -> int:
        """About what the entry log and the journal take up on the disk."""
        return self._entry_log.stored_bytes + len(self.journal.live) * self._settings.journal_segment_bytes

    @property
    def ledger_count(self) -> int:
        """How many ledgers are known."""
        return len(self._ledgers)

    @property
    def checkpoint_number(self) -> int:
        """Of the last one; it only grows."""
        return self._checkpointer.mark.number

    @property
    def ledger_ids(self) -> Iterable[int]:
        """All ledgers that are known, in no order."""
        return self._ledgers.keys()

    def of(self, _ledger_id: int) -> Storage:
        """The storage that a ledger lies in: this one."""
        return self

    def ledger(self, ledger_id: int) -> Ledger | None:
        """What is known of a ledger; to look at only."""
        return self._ledgers.get(ledger_id)

    def set_read_only(self, read_only: bool) -> None:
        """Whether normal adds are refused, as whoever watches the disk has it."""
        self.read_only = read_only

    async def end_limbo(self) -> None:
        """Nothing is in doubt any more, and nothing is listed. Raises DiskFailed."""
        assert self.limbo is not None
        await self.limbo.end()
        self.limbo = None

    # -- life

    @staticmethod
    async def format(disk: Disk, bookie_id: bytes, rng: Random, settings: BookieSettings) -> None:
        """Lays down an empty store: the first journal segment, then the first checkpoint mark."""
        files = SegmentFiles(disk, rng, bookie_id, settings)
        await (await files.prepare(1)).file.close()
        await Checkpointer.format(disk, bookie_id)

    @classmethod
    async def open(
        cls,
        disk: Disk,
        bookie_id: bytes,
        *,
        validate: Validate,
        rng: Random,
        settings: BookieSettings,
        metrics: Metrics,
        digests: LedgerDigests | None = None,
        facts: LedgerFacts | None = None,
        clock: Clock | None = None,
        limbo: Limbo | None = None,
        disk_full: asyncio.Event | None = None,
    ) -> Storage:
        """Loads the last checkpoint, replays the journal, checkpoints, and begins a new journal segment.

        `digests` check what is added; without them all is stored. Without `facts` and `clock` no ledger is deleted.
        `limbo`: of a store that was salvaged. `disk_full` is set when a checkpoint met a full disk.

        On a full disk it opens read-only; what was replayed is durable before it is served (`journal_replay`).

        Raises:
            CorruptData: naming file and offset. VersionMismatch, DiskFailed.
        """
        checkpointer = await Checkpointer.load(disk, bookie_id, settings)
        await checkpointer.entry_log.find()
        files = SegmentFiles(disk, rng, bookie_id, settings)
        generations = await files.find()
        mark = checkpointer.mark
        replay = JournalReplay(disk, files, generations, first_generation=mark.generation, first_group=mark.group)
        end = await replay.verify()
        if end.torn:
            _log.info("dropped an incomplete group at the end of the journal, as a crash leaves it", found=end.torn)
        await replay.repair_end(end)
        await replay_journal(replay, checkpointer, write_cache_bytes=settings.write_cache_bytes)
        journal = Journal(files, settings, metrics)
        older = [generation for generation in generations if generation <= end.generation]
        await journal.start(end.generation + 1, end.next_group, older=older, ends_at=end.offset)
        full: DiskFull | None = None
        try:
            await checkpointer.run(journal)
        except DiskFull as error:
            full = error
        except BaseException:
            await journal.close()
            raise
        if limbo is not None:
            validate = LimboValidation(limbo, validate)
        disk_full = disk_full or asyncio.Event()
        storage = cls(disk, checkpointer, journal, validate, settings, metrics, digests, limbo, disk_full)
        await storage._begin_collecting(facts, clock, rng, metrics, may_fill=full is None)
        if full is not None:
            storage.met_full_disk(full)
        return storage

    async def _begin_collecting(
        self, facts: LedgerFacts | None, clock: Clock | None, rng: Random, metrics: Metrics, *, may_fill: bool
    ) -> None:
        reserve = DiskReserve(self._disk, self._settings.disk_reserve_bytes)
        await reserve.find()
        if may_fill:
            await reserve.fill()
        parts = GcParts(
            self._index, self._entry_log, self.journal, self._checkpoints, reserve, free_bytes=self._disk.free_bytes
        )
        self._collector = GarbageCollector(
            self, parts, facts, clock=clock, rng=rng, settings=self._settings, metrics=metrics
        )

    async def close(self) -> None:
        """Takes nothing more, makes durable what was taken, and stores it. Idempotent."""
        if self._closing:
            return
        self._closing = True
        if self._collector is not None:
            await self._collector.stop()
        await self._checkpoints.stop()
        await self._tasks.close()
        if not self.failed.done():
            try:
                await self.checkpoint()
            except StorageError as error:
                _log.warning("no last checkpoint; the journal is replayed at the next start", error=error)
        await self.journal.close()
        await self._entry_log.close()

    # -- adds

    def add(self, request: AddRequest, answers: AddAnswers) -> V2Status | None:
        """Takes one add. Returns OK: stored; answer it when `when_durable` calls back. None: `answers` is called later. Else: refused."""
        ledger = self._ledgers.get(request.ledger_id)
        if ledger is None and request.ledger_id in self._tombstones:
            return V2Status.FENCED
        if self.drains:
            return V2Status.READ_ONLY
        verdict = decide_add(
            None if ledger is None else ledger.master_key,
            request.master_key,
            fenced=ledger is not None and ledger.fenced,
            validated=ledger is not None and ledger.validated,
            recovery=request.recovery,
            read_only=self.read_only,
            control=request.control,
        )
        if verdict is not AddVerdict.STORE:
            return self._unvalidated.wait(request, answers) if verdict is AddVerdict.VALIDATE else V2Status(verdict)
        if self._index.cached_bytes >= self._cache_limit:
            return V2Status.TOO_MANY_REQUESTS
        if self._digests is not None and not self._digests.matches(request.ledger_id, request.body):
            return V2Status.BAD_REQUEST
        try:
            if ledger is not None and ledger.holds(request.entry_id):
                return self._repeats.judge(ledger, request, answers)
            if not request.recovery and not self._takes(len(request.body), control=request.control):
                return V2Status.READ_ONLY
            if ledger is None:
                ledger = self._create(request.ledger_id, request.master_key, validated=False)
            self.journal.append(_ENTRY, request.body)
        except InvalidArgument:
            return V2Status.BAD_REQUEST
        except BokiError as error:
            return _refusal(error)
        self._index.put(ledger, request.entry_id, request.body)
        return V2Status.OK

    def add_run(self, run: AddRun) -> bool:
        """`add` for a run at once, where nothing is against any of its adds; else they have to come one by one. Returns true:
        all are stored; answer them when `when_durable` calls back. False: none is."""
        ledger = self._ledgers.get(run.ledger_id)
        if ledger is None or run.entry_ids[0] <= ledger.last_entry or self.drains:
            return False
        verdict = decide_add(
            ledger.master_key,
            run.master_key,
            fenced=ledger.fenced,
            validated=ledger.validated,
            recovery=run.recovery,
            read_only=self.read_only,
            control=run.control,
        )
        if verdict is not AddVerdict.STORE or self._index.cached_bytes + run.body_bytes >= self._cache_limit:
            return False
        sums: list[int] = []
        if self._digests is not None:
            if not self._digests.all_match(run.ledger_id, run.bodies):
                return False
            if run.body_bytes >= SUMMED_BODY_BYTES * run.count:
                sums = self._digests.sums_of(run.ledger_id, run.bodies)
        if not run.recovery and not self._takes(run.body_bytes, control=run.control):
            return False
        if not self.journal.append_run(_ENTRY, run.bodies, run.body_bytes, sums):
            return False
        if sums:
            ledger.sums.update(zip(run.entry_ids, sums, strict=True))
        self._index.put_run(ledger, run.entry_ids, run.bodies, run.body_bytes + CACHED_OVERHEAD_BYTES * run.count)
        return True

    def _takes(self, size: int, *, control: bool) -> bool:
        """Whether the disk has room for so many bytes; counts them. User data that find none make the bookie read-only."""
        if self.read_only:
            return control and self.room.take_control(size)
        if self.room.take_data(size):
            return True
        self.set_read_only(True)
        self._disk_full.set()
        return control and self.room.take_control(size)

    def replace_damaged(self, ledger: Ledger, request: AddRequest) -> V2Status:
        """Stores an entry again whose stored copy is damaged. Returns oK: answer it when `when_durable` calls back. Else:
        refused."""
        if self.drains:
            return V2Status.READ_ONLY  # it came before the drain did
        try:
            self.journal.append(_REPLACED, request.body)
        except BokiError as error:
            return _refusal(error)
        self._index.replace(ledger, request.entry_id, request.body)
        _log.info("replaced a damaged entry", ledger_id=request.ledger_id, entry_id=request.entry_id)
        return V2Status.OK

    def when_durable(self, done: Done) -> bool:
        """Calls back when the adds taken so far may be acknowledged: durable, and the write cache is not too full. Returns
        whether it is too full now: whoever sent them should send no more before."""
        index, live = self._index, self.journal.live
        if index.fresh_bytes >= self._checkpoint_above or live[-1] - live[0] >= self._segments_limit:
            self._checkpoints.request()
        if self.room.look_due and not self.read_only:
            self._disk_full.set()  # wakes whoever looks at the disk
        if index.cached_bytes < self._slow_above or self.read_only:
            self.journal.when_durable(done)
            return False
        freed_at = index.freed_bytes + index.cached_bytes - self._slow_above
        self.journal.when_durable(partial(self._when_freed, done, freed_at))
        return True

    def _when_freed(self, done: Done, freed_at: int, error: BokiError | None) -> None:
        if error is None and self._index.freed_bytes <= freed_at and not self.read_only:
            self._checkpoints.when_freed(done, freed_at)
        else:
            done(error)

    def _create(self, ledger_id: int, master_key: bytes, *, validated: bool) -> Ledger:
        self.journal.append(RecordKind.LEDGER, encode_ledger(LedgerRecord(ledger_id, validated, master_key)))
        return self._index.create(ledger_id, master_key, validated=validated)

    def note_validated(self, ledger_id: int, master_key: bytes) -> V2Status:
        """Notes that the metadata named this bookie; the journal keeps the note, so it is not asked again."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None and ledger_id in self._tombstones:
            return V2Status.FENCED
        try:
            if ledger is None:
                self._create(ledger_id, master_key, validated=True)
            elif not ledger.validated:
                record = LedgerRecord(ledger_id, True, ledger.master_key)
                self.journal.append(RecordKind.LEDGER, encode_ledger(record))
                self._index.validate(ledger)
        except BokiError as error:
            return _refusal(error)
        return V2Status.OK

    # -- fences

    def fence(self, ledger_id: int, master_key: bytes) -> V2Status:
        """Fences a ledger, known or not. Returns oK: answer the request only after `journal.when_durable` called back, whatever
        the answer is. Else: refused, and not fenced."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            if ledger_id < 0:
                return V2Status.BAD_REQUEST  # no ledger can be called so: there is nothing to keep anybody from
            if ledger_id in self._tombstones:
                return V2Status.OK  # it was deleted: no add will be taken any more
            verdict = decide_fence(None, master_key, fenced=False)
        else:
            verdict = decide_fence(ledger.master_key, master_key, fenced=ledger.fenced)
        if verdict is FenceVerdict.UNAUTHORIZED:
            return V2Status.UNAUTHORIZED
        if verdict is FenceVerdict.ALREADY_FENCED:
            return V2Status.OK
        try:
            if ledger is None:
                ledger = self._create(ledger_id, master_key, validated=False)
            self.journal.append(RecordKind.FENCE, encode_ledger_id(ledger_id))
        except BokiError as error:
            return _refusal(error)
        self._index.fence(ledger)
        _log.info("ledger fenced", ledger_id=ledger_id, last_entry=ledger.last_entry)
        return V2Status.OK

    # -- holds

    def hold(self, ledger_id: int, master_key: bytes, version: int) -> V2Status:
        """Notes that no reading of the ledger's metadata at `version` or before is a reason to drop what is held of it. Returns
        OK: answer when `journal.when_durable` called back. Else: refused."""
        if ledger_id < 0 or not 0 <= version < HELD_FOR_GOOD:
            return V2Status.BAD_REQUEST
        if self.drains:
            return V2Status.READ_ONLY  # it takes no copies
        ledger = self._ledgers.get(ledger_id)
        if ledger is None and ledger_id in self._tombstones:
            return V2Status.NO_LEDGER  # its metadata is gone, and no copy is taken any more
        if ledger is not None and decide_fence(ledger.master_key, master_key, fenced=True) is FenceVerdict.UNAUTHORIZED:
            return V2Status.UNAUTHORIZED
        try:
            if ledger is None:
                ledger = self._create(ledger_id, master_key, validated=False)
            if version > ledger.hold:
                self.journal.append(RecordKind.HOLD, encode_hold(ledger_id, version))
                self._index.hold(ledger, version)
        except BokiError as error:
            return _refusal(error)
        return V2Status.OK

    # -- LACs that are written by themselves

    def write_lac(self, ledger_id: int, master_key: bytes, body: bytes) -> V2Status:
        """Keeps an explicit LAC (its body as it was sent) of a ledger, known or not; a lower one than held is forgotten.

        Returns:
            OK: answer when `journal.when_durable` called back. Else: refused. A fence does not matter: what the LAC says
            was acknowledged, it was.
        """
        ledger = self._ledgers.get(ledger_id)
        if ledger is not None and decide_fence(ledger.master_key, master_key, fenced=True) is FenceVerdict.UNAUTHORIZED:
            return V2Status.UNAUTHORIZED
        if self.read_only:
            return V2Status.READ_ONLY
        if ledger is None and ledger_id in self._tombstones:
            return V2Status.NO_LEDGER
        try:
            if ledger is None:
                ledger = self._create(ledger_id, master_key, validated=False)
            if int.from_bytes(body[8:16], "big", signed=True) > ledger.lac:
                self.journal.append(RecordKind.LAC, body)
                self._index.note_lac(ledger, body)
        except BokiError as error:
            return _refusal(error)
        return V2Status.OK

    def is_fenced(self, ledger_id: int) -> bool:
        """Whether normal adds are refused: fenced, or deleted."""
        ledger = self._ledgers.get(ledger_id)
        return ledger_id in self._tombstones if ledger is None else ledger.fenced

    def explicit_lac(self, ledger_id: int) -> bytes:
        """The body of the highest LAC that was written by itself; empty for none."""
        ledger = self._ledgers.get(ledger_id)
        return b"" if ledger is None else ledger.explicit_lac

    # -- checkpoints

    async def checkpoint(self) -> None:
        """One checkpoint, after the one that may be running. Raises DiskFull, DiskFailed."""
        await self._checkpoints.run_one()

    def request_checkpoint(self) -> None:
        """Lets a checkpoint begin soon, such as when there is space again; on a full disk garbage collection as well."""
        self._checkpoints.request()
        if self.read_only:
            self.request_gc()

    # -- garbage collection

    def gc_state(self) -> GcState:
        """What garbage collection last saw and did."""
        return GcState() if self._collector is None else self._collector.state()

    def request_gc(self, *, major: bool = False) -> None:
        """Lets garbage collection begin soon; a major one reads all metadata and compacts more."""
        if self._collector is not None:
            self._collector.request(major=major)

    async def collect_garbage(self, *, major: bool = False) -> GcState:
        """One run, after the one that may be running. Raises DiskFailed, ClosedError."""
        if self._collector is not None:
            await self._collector.run_once(major=major)
        return self.gc_state()

    def met_full_disk(self, error: DiskFull) -> None:
        """For the checkpoints: there was no space for one."""
        self.set_read_only(True)
        self._disk_full.set()
        self.request_gc()
        _log.warning("no space for a checkpoint: the bookie is read-only until there is", error=error)

    def _journal_failed(self, failed: asyncio.Future[BokiError]) -> None:
        if not self._closing:
            self.fail(failed.result())

    def fail(self, error: BokiError) -> None:
        """For what runs inside: the store cannot go on."""
        if not self.failed.done():
            self.failed.set_result(error)
            self._checkpoints.end()


def _refusal(error: BokiError) -> V2Status:
    """Of what the journal does not take: it is full, or has failed, of which `failed` has the reason."""
    return V2Status.TOO_MANY_REQUESTS if isinstance(error, Overloaded) else V2Status.IO_ERROR
