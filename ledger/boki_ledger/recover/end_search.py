"""Finds the end of a ledger in recovery, and makes every entry up to it durable.

    1  Fencing reads of the last entry, to all bookies of the last fragment, until every ack quorum meets one that answered.
       The highest LAC in their answers is where reading starts.
    2  Fencing reads of every entry from there on, `reads_in_flight` at once, each from its whole write set. All reads use
       the metadata as it was when the ledger went into recovery, and all of them fence: so a negative stays true. Where the first
       few are all there, what follows is read in batches (`batch_reads`), which do not fence: a valid copy needs no fence to
       count. What batches do not bring, and so every negative and the end, is read singly again.
    3  Every entry found is added again as it is (`write_back`), until its ack quorum has it. An entry whose payload the
       caller has (`carried`) is not asked for.

`recovery_plan` decides, this module asks; not every bookie's negative counts, see `fence_proof`. An answer that does not come
is asked for again until `retry_for_s` passed without any progress (`fencing_reads`); then the search fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from boki_common.bookkeeper import v2
from boki_common.bookkeeper.digests import digest_for, master_key
from boki_common.bookkeeper.entry_body import header_of, verify_body
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata
from boki_common.errors import BokiError, DigestMismatch, LedgerDataMissing, NotEnoughBookies, RecoveryFailed
from boki_common.ids import BookieId
from boki_common.logs import get_logger
from boki_common.runtime.ports import Buffer
from boki_ledger.metadata.ensemble_change import Fragment
from boki_ledger.metadata.member_trust import Member, names, trust
from boki_ledger.ports import LedgerPorts
from boki_ledger.read.batch_reads import BatchReads
from boki_ledger.read.replica_reads import ReplicaReads
from boki_ledger.recover.fence_proof import FenceProofs
from boki_ledger.recover.fencing_reads import FencingReads
from boki_ledger.recover.write_back import WriteBack
from boki_ledger.rules.answers import Answer, answer_of
from boki_ledger.rules.coverage import covered
from boki_ledger.rules.recovery_plan import RecoveryPlan, recovery_start
from boki_ledger.transport import ReadAnswer

FIRST_READS: Final = 4
"""Entries asked for at once before any was found: most ledgers end right there. So many found: batches are tried."""

_log = get_logger("ledger")


class LedgerEnd(NamedTuple):
    """What closing a recovered ledger writes."""

    last_entry: int
    length: int
    fragments: tuple[Fragment, ...]
    start: int
    """The last entry taken as acknowledged when the search began."""


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


class EndSearch:
    """One search, see the module. Use `run` once, then `close`."""

    def __init__(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        ports: LedgerPorts,
        *,
        floor: int,
        carried: Mapping[int, Buffer],
    ) -> None:
        """`metadata`: as it was when the ledger went into recovery."""
        self._ledger_id = ledger_id
        self._metadata = metadata
        self._ports = ports
        self._floor = floor
        self._carried = carried
        self._ensemble = metadata.ensembles[-1][1]
        self._digest = digest_for(metadata.digest_type, metadata.password)
        self._reads = FencingReads(ledger_id, self._ensemble, master_key(metadata.password), ports, self)
        self._fenced = [Answer.UNKNOWN] * metadata.ensemble_size
        self._lacs = [-1] * metadata.ensemble_size
        self._proofs: FenceProofs | None = None
        self._plan: RecoveryPlan | None = None
        self._written: WriteBack | None = None

    async def run(self) -> LedgerEnd:
        """The end, once all before it is durable. Raises what `LedgerRecovery.run` does."""
        members = await self._look_at_members()
        start = await self._fence()
        plan = self._plan = RecoveryPlan(
            start=start,
            ensemble_size=self._metadata.ensemble_size,
            write_quorum=self._metadata.write_quorum,
            ack_quorum=self._metadata.ack_quorum,
            floor=self._floor,
            carried=self._carried,
        )
        written = self._written = WriteBack(
            self._ledger_id, self._metadata, plan, self._carried, self._ports, self._reads
        )
        if start + 1 in self._carried:
            written.written_length = await self._length_at(start)
        written.write()  # what is carried: the window of questions opens behind what is written
        await self._find_end(plan, written)
        end = plan.end
        assert end is not None
        check_floor(self._ledger_id, end, self._floor)
        length = written.written_length if written.written_to > start else await self._length_at(end)
        await self._check_members(members)
        return LedgerEnd(end, length, written.fragments, start)

    async def close(self) -> None:
        """Ends what is under way. Idempotent."""
        self._reads.close()
        if self._proofs is not None:
            await self._proofs.close()
        if self._written is not None:
            self._written.close()

    # -- fencing

    async def _fence(self) -> int:
        """Fences until covered; returns the last entry taken as acknowledged."""
        metadata = self._metadata

        def enough() -> bool:
            return covered(self._fenced, write_quorum=metadata.write_quorum, ack_quorum=metadata.ack_quorum)

        def questions() -> Iterator[tuple[int, int]]:
            return ((v2.LAST_ENTRY, slot) for slot, answer in enumerate(self._fenced) if not answer.definite)

        await self._reads.work(enough, questions)
        return recovery_start(self._lacs, last_fragment_first=metadata.ensembles[-1][0])

    def _take_fence(self, slot: int, answer: ReadAnswer) -> Answer:
        """An OK proves the fence even if the body it brings is damaged; only its LAC is lost then."""
        taken = answer_of(answer.status)
        if taken is Answer.HAVE and (checked := self._verified(v2.LAST_ENTRY, answer.body)) is not None:
            self._lacs[slot] = checked[0].lac
        if taken is Answer.NEVER_HAD and not self._denial_counts(slot, answer):
            taken = Answer.UNKNOWN
        self._fenced[slot] = taken
        return taken

    # -- whose negatives count

    async def _look_at_members(self) -> dict[BookieId, Member]:
        """Who the bookies are, and so whose denials count."""
        updates, ledger_id, metadata = self._ports.updates, self._ledger_id, self._metadata
        members = await updates.retry(lambda: updates.members.look(self._ensemble))
        foreign = any(not member.ours for member in members.values())
        made = await updates.retry(lambda: updates.made(ledger_id)) if foreign else None
        self._proofs = FenceProofs(
            ledger_id,
            master_key(metadata.password),
            {bookie: trust(bookie, member, metadata, ledger_made=made) for bookie, member in members.items()},
            transport=self._ports.transport,
            settings=self._ports.settings,
            proven=self._reads.ask_again,
            ended=self._reads.look_again,
        )
        return dict(members)

    def _denial_counts(self, slot: int, answer: ReadAnswer) -> bool:
        assert self._proofs is not None
        return self._proofs.counts(self._ensemble[slot], answer)

    async def _check_members(self, before: Mapping[BookieId, Member]) -> None:
        """Raises RecoveryFailed if a bookie was formatted anew since its negatives began to count."""
        assert self._proofs is not None
        updates, relied_on = self._ports.updates, self._proofs.relied_on
        now = await updates.retry(lambda: updates.members.look(relied_on, fresh=True))
        changed = sorted(bookie for bookie, member in now.items() if before[bookie] != member)
        if changed:
            raise RecoveryFailed(
                f"expected the bookies of ledger {self._ledger_id} to stay the same while it was recovered, found new cookies "
                f"of {names(changed)}: what they denied proves nothing; try again when other bookies of it are back",
                missing=changed,
                ledger_id=self._ledger_id,
            )

    # -- entries

    async def _find_end(self, plan: RecoveryPlan, written: WriteBack) -> None:
        """Entries until the end is proven and all before it are durable: singly, and in batches where those bring many."""
        opened_at = plan.start
        batch_from = plan.start + FIRST_READS

        def recovered() -> bool:
            end = plan.end
            return end is not None and (plan.below_floor or end == plan.start or written.durable_to == end)

        def ready() -> bool:
            return recovered() or (plan.end is None and plan.present_to >= batch_from)

        def questions() -> Iterator[tuple[int, int]]:
            """Undecided entries of the window, on all slots that gave no definite answer. It opens as entries are found."""
            if plan.end is not None:
                return
            window = self._ports.settings.reads_in_flight
            ahead = plan.present_to + min(window, FIRST_READS + 2 * (plan.present_to - opened_at))
            for entry_id in range(plan.present_to + 1, 1 + min(ahead, written.durable_to + window)):
                for slot in plan.to_ask(entry_id):
                    yield entry_id, slot

        while not recovered():
            await self._reads.work(ready, questions)
            if not recovered():
                await self._read_batches(plan, written)
                opened_at = plan.present_to
                batch_from = plan.present_to + FIRST_READS

    async def _read_batches(self, plan: RecoveryPlan, written: WriteBack) -> None:
        """Takes entries from batch reads for as long as these bring all that they are asked for."""
        settings = self._ports.settings
        reads = BatchReads(self._ledger_id, self._take_run, self._ports.transport, settings, self._ports.metrics)
        size = settings.batch_read_entries * settings.batch_reads_in_flight
        while True:
            first = plan.present_to + 1
            found = await reads.read(first, first + size - 1, self._metadata)
            for entry_id, (header, body) in sorted(found.items()):
                if entry_id > plan.present_to and plan.end is None:
                    written.keep(entry_id, body, header.length)
                    plan.found(entry_id)
            if found:
                self._reads.progressed()
            written.write()
            if len(found) < size or plan.end is not None or self._reads.refusal is not None:
                return
            await self._reads.work(lambda: written.has_room, lambda: iter(()))

    def _take_run(
        self, first: int, bodies: Sequence[memoryview], found: dict[int, tuple[v2.EntryHeader, memoryview]]
    ) -> None:
        """The headers and the whole bodies of those whose digests are right: they are written back as they are."""
        for entry_id, body in enumerate(bodies, first):
            checked = self._verified(entry_id, body)
            if checked is not None:
                found[entry_id] = checked[0], body

    def _take_entry(self, entry_id: int, slot: int, answer: ReadAnswer) -> Answer:
        plan, written = self._plan, self._written
        assert plan is not None and written is not None
        taken = answer_of(answer.status)
        if taken is Answer.HAVE:
            checked = self._verified(entry_id, answer.body)
            if checked is None:
                return Answer.UNKNOWN
            if entry_id > plan.present_to and plan.end is None:
                assert answer.body is not None
                written.keep(entry_id, answer.body, checked[0].length)
        if taken is Answer.NEVER_HAD and not self._denial_counts(slot, answer):
            return Answer.UNKNOWN
        plan.answered(entry_id, slot, taken)
        written.write()
        return taken

    async def _length_at(self, entry_id: int) -> int:
        """The length behind an acknowledged entry, from the entry."""
        if entry_id < 0:
            return 0
        ports = self._ports
        reads = ReplicaReads(self._ledger_id, self._digest, ports.transport, ports.settings, ports.metrics)
        try:
            body = await reads.read_body(entry_id, lambda: self._metadata)
        except BokiError as error:
            raise RecoveryFailed(
                f"ledger {self._ledger_id} ends at entry {entry_id}, which no bookie gives now: {error}",
                ledger_id=self._ledger_id,
                entry_id=entry_id,
            ) from error
        return header_of(body).length

    def _verified(self, entry_id: int, body: memoryview | None) -> tuple[v2.EntryHeader, memoryview] | None:
        """Header and payload of a valid copy; a damaged one is no answer."""
        assert body is not None
        try:
            return verify_body(body, self._ledger_id, entry_id, self._digest)
        except DigestMismatch as error:
            self._ports.metrics.digest_mismatches.inc()
            _log.warning("damaged copy met in recovery", ledger_id=self._ledger_id, entry_id=entry_id, error=error)
            return None

    # -- what the reads call

    def take(self, entry_id: int, slot: int, answer: ReadAnswer) -> Answer:
        return self._take_fence(slot, answer) if entry_id == v2.LAST_ENTRY else self._take_entry(entry_id, slot, answer)

    def waits(self) -> bool:
        return (self._proofs is not None and self._proofs.under_way) or (
            self._written is not None and self._written.waits
        )

    def gave_up(self) -> BokiError:
        facts = {"ledger_id": self._ledger_id}
        written = self._written
        if written is not None and written.unfinished and not self._reads.open:
            return NotEnoughBookies(
                f"expected {self._metadata.ack_quorum} bookies to take entry {written.durable_to + 1} of ledger "
                f"{self._ledger_id} again, found fewer; it stays in recovery: try again when bookies are back",
                **facts,
            )
        missing = self._reads.missing
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
