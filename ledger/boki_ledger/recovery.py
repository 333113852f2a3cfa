"""Recovery of one ledger: fence it, find its end, make every entry up to it durable, close it. By anybody, any number at once.

    1  OPEN → IN_RECOVERY by compare-and-swap: from here on the writer can neither change its ensemble nor close.
    2  Fencing reads of the last entry, to all bookies of the last fragment, until every ack quorum meets one that answered.
       The highest LAC in their answers is where reading starts.
    3  Fencing reads of every entry from there on, `reads_in_flight` at once, each from its whole write set. All reads use
       the metadata as it was after step 1, and all of them fence: so a negative stays true. Where the first few are all
       there, what follows is read in batches (`batch_reads`), which do not fence: a valid copy needs no fence to count.
       What batches do not bring, and so every negative and the end, is read singly again.
    4  Every entry found is added again as it is (recovery adds), until its ack quorum has it. Bookies that fail are replaced
       in memory only.
       An entry whose payload the caller has (`carried`) is not asked for: it is added with what the writer would have said.
    5  At the proven end one compare-and-swap writes ensembles, end, length and CLOSED. If somebody else closed first, his end
       is the end; what we wrote beyond it nobody reads.

`recovery_plan` decides, this module asks; not every bookie's negative counts, see `fence_proof`. An answer that does not come
is asked for again until `patience_s` passed without any progress; then the recovery fails, the ledger stays IN_RECOVERY, and
anybody may try again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from boki_common.bookkeeper import v2
from boki_common.bookkeeper.digests import digest_for, master_key
from boki_common.bookkeeper.entry_body import header_of, verify_body
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import (
    BokiError,
    DigestMismatch,
    LedgerDataMissing,
    NotEnoughBookies,
    RecoveryFailed,
    Unauthorized,
)
from boki_common.ids import BookieId
from boki_common.logs import get_logger
from boki_common.runtime.ports import Buffer, Random
from boki_ledger.answers import Answer, answer_of
from boki_ledger.batch_reads import BatchReads
from boki_ledger.coverage import covered
from boki_ledger.ensemble_change import Fragment, change_ensemble, choose_replacements
from boki_ledger.fence_proof import FenceProofs
from boki_ledger.member_trust import names, trust
from boki_ledger.metadata_update import LedgerUpdates, SeenMetadata
from boki_ledger.metric_definitions import LedgerMetrics
from boki_ledger.recovery_plan import RecoveryPlan, recovery_start
from boki_ledger.replica_reads import ReplicaReads
from boki_ledger.replicated_adds import ReplicatedAdds
from boki_ledger.settings import LedgerSettings
from boki_ledger.transport import BookieChooser, BookieTransport, ReadAnswer

FIRST_READS: Final = 4
"""Entries asked for at once before any was found: most ledgers end right there. So many found: batches are tried."""

JOINED_BYTES: Final = 8_192
"""Frames up to this size are joined once, instead of once per replica."""

_log = get_logger("ledger")


def check_floor(ledger_id: int, last_entry: int, floor: int) -> None:
    """Raises LedgerDataMissing if the ledger ends before entries that are known to have been acknowledged."""
    if last_entry + 1 < floor:
        raise LedgerDataMissing(
            f"expected ledger {ledger_id} to hold at least {floor} entries, found proof of {last_entry + 1} only: bookies "
            "lost acknowledged data; bring back the bookies that held it, or declare the entries lost",
            ledger_id=ledger_id,
            expected=floor,
            found=last_entry + 1,
        )


class LedgerRecovery:
    """One run, see the module. Use `run` once."""

    def __init__(
        self,
        ledger_id: int,
        *,
        floor: int,
        carried: Mapping[int, Buffer],
        transport: BookieTransport,
        chooser: BookieChooser,
        updates: LedgerUpdates,
        rng: Random,
        settings: LedgerSettings,
        metrics: LedgerMetrics,
        known: SeenMetadata | None = None,
    ) -> None:
        """`known`: the ledger's metadata as its opener read them, which saves reading them again. `carried`: payloads of
        entries that belong into the ledger, by entry id."""
        self._ledger_id = ledger_id
        self._known = known
        self._floor = floor
        self._carried = carried
        self._transport = transport
        self._chooser = chooser
        self._updates = updates
        self._rng = rng
        self._settings = settings
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._progress = 0
        self._refusal: BokiError | None = None
        self._asked: dict[tuple[int, int], asyncio.Future[ReadAnswer]] = {}
        self._unknown: set[tuple[int, int]] = set()
        self._adds: ReplicatedAdds | None = None
        self._failed: set[BookieId] = set()
        self._bodies: dict[int, tuple[memoryview, int]] = {}
        self._proofs: FenceProofs | None = None

    async def run(self) -> SeenMetadata:
        """Closes the ledger, or finds it closed.

        Raises:
            RecoveryFailed: no proof of the end; the ledger stays in recovery. NotEnoughBookies: what was found could not
                be made durable. Both: try again.
            LedgerDataMissing: the end is proven to lie below the floor; nothing was closed.
            Unauthorized, NoSuchLedger, MetadataUnavailable.
        """
        started = self._loop.time()
        outcome = "failed"
        try:
            seen = await self._recover()
            check_floor(self._ledger_id, seen.metadata.last_entry, self._floor)
            outcome = "closed"
        finally:
            self._metrics.recoveries.labels(outcome).inc()
            self._metrics.recovery_time.observe(self._loop.time() - started)
            for future in self._asked.values():
                future.cancel()
            if self._proofs is not None:
                await self._proofs.close()
            if self._adds is not None:
                self._adds.close()
        return seen

    async def _recover(self) -> SeenMetadata:
        seen = await self._updates.change(
            self._ledger_id, _to_recovery, known=self._known, patience_s=self._settings.patience_s
        )
        metadata = seen.metadata
        if metadata.state is LedgerState.CLOSED:
            return seen
        self._snapshot = metadata
        self._fragments: tuple[Fragment, ...] = tuple(metadata.ensembles)
        self._first, self._ensemble = metadata.ensembles[-1]
        self._digest = digest_for(metadata.digest_type, metadata.password)
        self._key = master_key(metadata.password)
        self._proofs = await self._members_proofs(metadata)
        start = await self._fence()
        self._plan = RecoveryPlan(
            start=start,
            ensemble_size=metadata.ensemble_size,
            write_quorum=metadata.write_quorum,
            ack_quorum=metadata.ack_quorum,
            floor=self._floor,
            carried=self._carried,
        )
        self._written_length = await self._length_at(start) if start + 1 in self._carried else -1
        self._written_to = start
        self._write_back()  # what is carried: the window of questions opens behind what is written
        await self._find_end()
        end = self._plan.end
        assert end is not None
        check_floor(self._ledger_id, end, self._floor)
        length = self._written_length if self._written_to > start else await self._length_at(end)
        await self._check_members()
        closed = await self._close(seen, end, length)
        _log.info("ledger recovered", ledger_id=self._ledger_id, last_entry=closed.metadata.last_entry, start=start)
        return closed

    # -- fencing

    async def _fence(self) -> int:
        """Fences until covered; returns the last entry taken as acknowledged."""
        metadata = self._snapshot
        self._fenced = [Answer.UNKNOWN] * metadata.ensemble_size
        self._lacs = [-1] * metadata.ensemble_size

        def enough() -> bool:
            return covered(self._fenced, write_quorum=metadata.write_quorum, ack_quorum=metadata.ack_quorum)

        def questions() -> Iterator[tuple[int, int]]:
            return ((v2.LAST_ENTRY, slot) for slot, answer in enumerate(self._fenced) if not answer.definite)

        await self._work(enough, questions)
        return recovery_start(self._lacs, last_fragment_first=self._first)

    def _take_fence(self, slot: int, answer: ReadAnswer) -> Answer:
        """An OK proves the fence even if the body it brings is damaged; only its LAC is lost then."""
        taken = answer_of(answer.status)
        if taken is Answer.HAVE and (checked := self._checked(v2.LAST_ENTRY, answer)) is not None:
            self._lacs[slot] = checked[0].lac
        if taken is Answer.NEVER_HAD and not self._denial_counts(slot, answer):
            taken = Answer.UNKNOWN
        self._fenced[slot] = taken
        return taken

    # -- whose negatives count

    async def _members_proofs(self, metadata: LedgerMetadata) -> FenceProofs:
        members = await self._updates.patiently(lambda: self._updates.members.look(self._ensemble))
        foreign = any(not member.ours for member in members.values())
        made = await self._updates.patiently(lambda: self._updates.made(self._ledger_id)) if foreign else None
        self._members = members
        return FenceProofs(
            self._ledger_id,
            self._key,
            {bookie: trust(bookie, member, metadata, ledger_made=made) for bookie, member in members.items()},
            transport=self._transport,
            settings=self._settings,
            proven=self._proven,
            ended=self._news.set,
        )

    def _denial_counts(self, slot: int, answer: ReadAnswer) -> bool:
        assert self._proofs is not None
        return self._proofs.counts(self._ensemble[slot], answer)

    def _proven(self, bookie: BookieId) -> None:
        """What was not believed is asked again."""
        self._unknown = {(entry_id, slot) for entry_id, slot in self._unknown if self._ensemble[slot] != bookie}
        self._progress += 1
        self._news.set()

    async def _check_members(self) -> None:
        """Raises RecoveryFailed if a bookie was formatted anew since its negatives began to count."""
        assert self._proofs is not None
        relied_on = self._proofs.relied_on
        now = await self._updates.patiently(lambda: self._updates.members.look(relied_on, fresh=True))
        changed = self._proofs.suspects(self._members, now)
        if changed:
            raise RecoveryFailed(
                f"expected the bookies of ledger {self._ledger_id} to stay the same while it was recovered, found new cookies "
                f"of {names(changed)}: what they denied proves nothing; try again when other bookies of it are back",
                missing=changed,
                ledger_id=self._ledger_id,
            )

    # -- entries

    async def _find_end(self) -> None:
        """Entries until the end is proven and all before it are durable: singly, and in batches where those bring many."""
        plan = self._plan
        self._opened_at = plan.start
        batch_from = plan.start + FIRST_READS

        def ready() -> bool:
            return self._recovered() or (plan.end is None and plan.present_to >= batch_from)

        while not self._recovered():
            await self._work(ready, self._questions)
            if not self._recovered():
                await self._read_batches()
                self._opened_at = plan.present_to
                batch_from = plan.present_to + FIRST_READS

    async def _read_batches(self) -> None:
        """Takes entries from batch reads for as long as these bring all that they are asked for."""
        settings, plan = self._settings, self._plan
        reads = BatchReads(self._ledger_id, self._take_run, self._transport, settings, self._metrics)
        size = settings.batch_read_entries * settings.batch_reads_in_flight
        while True:
            first = plan.present_to + 1
            found = await reads.read(first, first + size - 1, self._snapshot)
            for entry_id, (header, body) in sorted(found.items()):
                if entry_id > plan.present_to and plan.end is None:
                    self._bodies.setdefault(entry_id, (body, header.length))
                    plan.found(entry_id)
            if found:
                self._progress += 1
            self._write_back()
            if len(found) < size or plan.end is not None or self._refusal is not None:
                return
            await self._work(self._has_room, lambda: iter(()))

    def _take_run(
        self, first: int, bodies: Sequence[memoryview], found: dict[int, tuple[v2.EntryHeader, memoryview]]
    ) -> None:
        """The headers and the whole bodies of those whose digests are right: they are written back as they are."""
        for entry_id, body in enumerate(bodies, first):
            try:
                found[entry_id] = verify_body(body, self._ledger_id, entry_id, self._digest)[0], body
            except DigestMismatch as error:
                self._metrics.digest_mismatches.inc()
                _log.warning("damaged copy met in recovery", ledger_id=self._ledger_id, entry_id=entry_id, error=error)

    def _has_room(self) -> bool:
        adds, settings = self._adds, self._settings
        return adds is None or (
            adds.acks.in_flight <= settings.window_entries // 2 and adds.bytes_in_flight <= settings.window_bytes // 2
        )

    def _recovered(self) -> bool:
        end = self._plan.end
        if end is None:
            return False
        return (
            self._plan.below_floor or end == self._plan.start or (self._adds is not None and self._adds.acks.lac == end)
        )

    def _questions(self) -> Iterator[tuple[int, int]]:
        """Undecided entries of the window, on all slots that gave no definite answer. It opens as entries are found."""
        plan = self._plan
        if plan.end is not None:
            return
        written = plan.start if self._adds is None else self._adds.acks.lac
        window = self._settings.reads_in_flight
        ahead = plan.present_to + min(window, FIRST_READS + 2 * (plan.present_to - self._opened_at))
        for entry_id in range(plan.present_to + 1, 1 + min(ahead, written + window)):
            for slot in plan.to_ask(entry_id):
                yield entry_id, slot

    def _take_entry(self, entry_id: int, slot: int, answer: ReadAnswer) -> Answer:
        taken = answer_of(answer.status)
        plan = self._plan
        if taken is Answer.HAVE:
            checked = self._checked(entry_id, answer)
            if checked is None:
                return Answer.UNKNOWN
            if entry_id > plan.present_to and plan.end is None:
                assert answer.body is not None
                self._bodies.setdefault(entry_id, (answer.body, checked[0].length))
        if taken is Answer.NEVER_HAD and not self._denial_counts(slot, answer):
            return Answer.UNKNOWN
        plan.answered(entry_id, slot, taken)
        self._write_back()
        return taken

    def _write_back(self) -> None:
        """Adds again, in order, what is proven present."""
        plan = self._plan
        if plan.below_floor:
            return
        while self._written_to < plan.present_to:
            if self._adds is None:
                self._adds = self._start_adds()
            entry_id = self._written_to + 1
            body, length = self._made(entry_id) if entry_id in self._carried else self._bodies.pop(entry_id)
            frame: Sequence[Buffer] = v2.encode_add_body([body], self._key, recovery=True)
            if len(body) <= JOINED_BYTES:
                frame = (b"".join(frame),)
            added = self._adds.add(frame, len(body))
            assert added == entry_id, f"expected to write back entry {entry_id}, wrote {added}"
            self._written_to, self._written_length = entry_id, length
        if plan.end is not None:
            self._bodies.clear()

    def _made(self, entry_id: int) -> tuple[memoryview, int]:
        """The body of a carried entry, and the length behind it. As LAC it names what is known to be acknowledged."""
        payload = self._carried[entry_id]
        length = self._written_length + len(payload)
        header = v2.EntryHeader(self._ledger_id, entry_id, self._plan.start, length)
        return memoryview(b"".join(v2.encode_body(header, self._digest, (payload,)))), length

    def _start_adds(self) -> ReplicatedAdds:
        metadata = self._snapshot
        return ReplicatedAdds(
            ledger_id=self._ledger_id,
            ensemble=self._ensemble,
            write_quorum=metadata.write_quorum,
            ack_quorum=metadata.ack_quorum,
            lac=self._plan.start,
            owner=self,
            transport=self._transport,
            settings=self._settings,
            metrics=self._metrics,
        )

    async def _length_at(self, entry_id: int) -> int:
        """The length behind an acknowledged entry, from the entry."""
        if entry_id < 0:
            return 0
        reads = ReplicaReads(self._ledger_id, self._digest, self._transport, self._settings, self._metrics)
        try:
            body = await reads.read_body(entry_id, lambda: self._snapshot)
        except BokiError as error:
            raise RecoveryFailed(
                f"ledger {self._ledger_id} ends at entry {entry_id}, which no bookie gives now: {error}",
                ledger_id=self._ledger_id,
                entry_id=entry_id,
            ) from error
        return header_of(body).length

    # -- what the adds call

    def acks_arrived(self) -> None:
        assert self._adds is not None
        if self._adds.advance():
            self._progress += 1
            self._news.set()

    def slots_failed(self) -> None:
        """Replaces failing bookies at once: the change is in memory, the closing swap commits it."""
        adds = self._adds
        self._news.set()
        if adds is None or not adds.acks.in_flight:
            return
        failing = adds.failing_slots()
        self._failed.update(adds.ensemble[slot] for slot in failing)
        healthy = self._rng.shuffled(self._chooser.writable())
        last_resort = self._rng.shuffled(self._chooser.quarantined())
        spares = [bookie for bookie in (*healthy, *last_resort) if bookie not in self._failed]
        replacements = choose_replacements(adds.ensemble, failing, spares)
        if not replacements:
            return
        first_entry = adds.acks.lac + 1
        self._fragments = change_ensemble(self._fragments, first_entry=first_entry, replacements=replacements)
        _log.info("ensemble of a recovery changed", ledger_id=self._ledger_id, first_entry=first_entry)
        adds.acks.frozen = True
        adds.replace(replacements)
        adds.acks.frozen = False
        self._loop.call_soon(self._advance_later)

    def bookie_failed(self, bookie: BookieId) -> None:
        self._chooser.failed(bookie)

    def adds_refused(self, error: BokiError) -> None:
        self._refusal = error
        self._news.set()

    def _advance_later(self) -> None:
        if self._adds is not None and not self._adds.closed:
            self.acks_arrived()

    # -- asking

    async def _work(self, done: Callable[[], bool], questions: Callable[[], Iterator[tuple[int, int]]]) -> None:
        """Asks until done. Each round asks every question once; what stayed unknown is asked again in the next."""
        settings = self._settings
        pause = settings.retry_least_s
        round_ends = self._loop.time() + pause
        progress, last_progress = self._progress, self._loop.time()
        while not done():
            if self._refusal is not None:
                raise self._refusal
            for entry_id, slot in questions():
                if (entry_id, slot) not in self._asked and (entry_id, slot) not in self._unknown:
                    self._ask(entry_id, slot)
            now = self._loop.time()
            if progress != self._progress:
                progress, last_progress = self._progress, now
            give_up_at = last_progress + settings.patience_s + (settings.answer_timeout_s if self._waits() else 0.0)
            if now >= give_up_at:
                raise self._gave_up()
            try:
                async with asyncio.timeout_at(min(round_ends, give_up_at)):
                    await self._news.wait()
            except TimeoutError:
                pause = min(2 * pause, settings.retry_most_s)
                round_ends = self._loop.time() + pause
                self._unknown.clear()
            self._news.clear()

    def _waits(self) -> bool:
        """Whether an answer may still come without asking again."""
        if self._asked or (self._proofs is not None and self._proofs.under_way):
            return True
        adds = self._adds
        return adds is not None and bool(adds.acks.in_flight) and adds.ready_slots() >= self._snapshot.ack_quorum

    def _ask(self, entry_id: int, slot: int) -> None:
        future = self._transport.read(self._ensemble[slot], self._ledger_id, entry_id, fence_key=self._key)
        self._asked[entry_id, slot] = future
        future.add_done_callback(lambda done: self._answered(entry_id, slot, done))

    def _answered(self, entry_id: int, slot: int, future: asyncio.Future[ReadAnswer]) -> None:
        if future.cancelled():
            return
        del self._asked[entry_id, slot]
        self._news.set()
        answer = future.result()
        if answer.status is V2Status.UNAUTHORIZED:
            self._refusal = Unauthorized(
                f"bookie {self._ensemble[slot]} refuses the password of ledger {self._ledger_id}",
                ledger_id=self._ledger_id,
            )
            return
        fencing = entry_id == v2.LAST_ENTRY
        taken = self._take_fence(slot, answer) if fencing else self._take_entry(entry_id, slot, answer)
        if taken.definite:
            self._progress += 1
        else:
            self._unknown.add((entry_id, slot))

    def _checked(self, entry_id: int, answer: ReadAnswer) -> tuple[v2.EntryHeader, memoryview] | None:
        """Header and payload of a valid copy; a damaged one is no answer."""
        assert answer.body is not None
        try:
            return verify_body(answer.body, self._ledger_id, entry_id, self._digest)
        except DigestMismatch as error:
            self._metrics.digest_mismatches.inc()
            _log.warning("damaged copy met in recovery", ledger_id=self._ledger_id, entry_id=entry_id, error=error)
            return None

    def _gave_up(self) -> BokiError:
        facts = {"ledger_id": self._ledger_id}
        adds = self._adds
        if adds is not None and adds.acks.in_flight and not self._asked and not self._unknown:
            return NotEnoughBookies(
                f"expected {self._snapshot.ack_quorum} bookies to take entry {adds.acks.lac + 1} of ledger "
                f"{self._ledger_id} again, found fewer; it stays in recovery: try again when bookies are back",
                **facts,
            )
        missing = sorted({self._ensemble[slot] for _, slot in (*self._asked, *self._unknown)})
        distrusted = self._proofs.distrusted if self._proofs is not None else []
        remedy = (
            f" or recover it with Apache's client if you know better: {names(distrusted)} may have been formatted anew since "
            "they joined the ledger, what they deny proves nothing"
            if distrusted
            else ""
        )
        return RecoveryFailed(
            f"too few bookies give a definite answer about ledger {self._ledger_id} (missing: {names(missing)}); "
            f"it stays in recovery: try again when they are back{remedy}",
            missing=missing,
            **facts,
        )

    # -- the end

    async def _close(self, seen: SeenMetadata, end: int, length: int) -> SeenMetadata:
        def closed(current: LedgerMetadata) -> LedgerMetadata | None:
            if current.state is LedgerState.CLOSED:
                return None
            if current.state is not LedgerState.IN_RECOVERY or current.ensembles != self._snapshot.ensembles:
                raise RecoveryFailed(
                    f"the metadata of ledger {self._ledger_id} changed while it was recovered: expected IN_RECOVERY with "
                    f"{len(self._snapshot.ensembles)} fragments as read, found {current.state.name} with other ones; recover "
                    "it again",
                    ledger_id=self._ledger_id,
                )
            return replace(current, state=LedgerState.CLOSED, last_entry=end, length=length, ensembles=self._fragments)

        return await self._updates.change(self._ledger_id, closed, known=seen, patience_s=self._settings.patience_s)


def _to_recovery(current: LedgerMetadata) -> LedgerMetadata | None:
    if current.state is LedgerState.OPEN:
        return replace(current, state=LedgerState.IN_RECOVERY)
    return None
