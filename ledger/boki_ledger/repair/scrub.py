"""Scrubs one ledger: each copy that the metadata names is looked for, on the bookie that it names.

    presence   each member lists its entries; with `mend` it gets those that it lacks (`replica_copies`)
    digests    each copy is read and checked, and the copies of an entry are compared (`scrub_rules`); with `mend` a damaged one is sent
               again, which its bookie takes only if it finds its own copy damaged as well

A ledger that was closed while its ack quorum had all entries lacks copies that nobody lost: its writer did not wait for them. A scrub
finds and makes these. Only fragments with a fixed end are looked at. A copy that is made here needs no hold: the metadata names the
bookie, and nobody takes another one off for it. Entries of which two sound copies differ are named and left as they are, those that
lack one too: a further copy would be a choice. Without digests that cannot be seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import Final

from boki_common.bookkeeper.digests import digest_for
from boki_common.bookkeeper.entry_body import verify_body
from boki_common.bookkeeper.ledger_metadata import NO_DIGEST, LedgerMetadata
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import BokiError, DigestMismatch, MetadataError, NoSuchLedger
from boki_common.ids import BookieId
from boki_common.logs import get_logger
from boki_ledger.ports import LedgerPorts
from boki_ledger.read.replica_copies import Pace, ReplicaCopies
from boki_ledger.repair.plan import fixed_fragments, slot_entries
from boki_ledger.repair.scrub_rules import Copy, Scrubbed, Verdict, has_diverged
from boki_ledger.rules.answers import Answer, answer_of
from boki_ledger.rules.write_set import write_set

ENTRIES_AT_ONCE: Final = 16

_log = get_logger("repair")


class Scrubber:
    """See the module. Any number may work at once."""

    def __init__(self, ports: LedgerPorts, *, pace: Pace | None = None, mend: bool = False) -> None:
        """`pace`: awaited with the bytes that are read or sent. `mend`: make what is missing; else only say so."""
        self._ports = ports
        self._pace = pace
        self._mend = mend

    async def scrub(self, ledger_id: int, *, digests: bool = False, without: Collection[BookieId] = ()) -> Scrubbed:
        """Looks at each copy of a ledger. `without`: bookies that are not asked, such as those that drain.

        Raises:
            NoSuchLedger: deleted. CorruptData: its metadata cannot be read. MetadataUnavailable.
        """
        metadata = (await self._ports.updates.read(ledger_id)).metadata
        done = Scrubbed(ledger_id)
        diverged: dict[int, None] = {}
        if digests and metadata.digest_type != NO_DIGEST:
            await self._compare(metadata, without, done, diverged)
        for bookie, owed in _owed(metadata).items():
            entries = [one for one in chain.from_iterable(owed) if one not in diverged] if diverged else owed
            if bookie not in without:
                await self._look_for(metadata, bookie, entries, done)
        return done

    async def _look_for(
        self, metadata: LedgerMetadata, bookie: BookieId, entries: Sequence[int] | Sequence[range], done: Scrubbed
    ) -> None:
        """Whether a bookie has what it owes. Raises NoSuchLedger, MetadataError."""
        copies = ReplicaCopies(done.ledger_id, metadata, bookie, self._ports, pace=self._pace)
        total = sum(1 if isinstance(one, int) else len(one) for one in entries)
        wanted = chain.from_iterable((one,) if isinstance(one, int) else one for one in entries)
        try:
            if not self._mend:
                lacking = await copies.lacking(wanted)
                if lacking is None:
                    done.unanswered[bookie] = "it does not list its entries now"
                else:
                    done.copies, done.missing = done.copies + total - lacking, done.missing + lacking
                return
            found = await copies.make_whole(wanted)
        except (NoSuchLedger, MetadataError):
            raise
        except BokiError as error:
            done.unanswered[bookie] = str(error)
            return
        done.copies += found.held + found.copied
        done.missing += total - found.held
        done.copied += found.copied
        done.copied_bytes += found.copied_bytes
        done.lost += found.lost.total
        if found.unanswered.total:
            done.unanswered[bookie] = f"{found.unanswered.total} entries are on bookies that do not answer"

    # -- digests

    async def _compare(
        self, metadata: LedgerMetadata, without: Collection[BookieId], done: Scrubbed, diverged: dict[int, None]
    ) -> None:
        """Compares the copies of all entries; `diverged` gets those that differ."""
        fragments = fixed_fragments(metadata)
        entries = iter(chain.from_iterable(range(one.first, one.end) for one in fragments))

        async def work() -> None:
            for entry_id in entries:
                if await self._differs(metadata, entry_id, without, done):
                    diverged[entry_id] = None

        workers = [asyncio.create_task(work(), name="scrubbing entries") for _ in range(ENTRIES_AT_ONCE)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.wait(workers)

    async def _differs(
        self, metadata: LedgerMetadata, entry_id: int, without: Collection[BookieId], done: Scrubbed
    ) -> bool:
        """Whether sound copies of an entry differ; if not, damaged ones are noted, and mended where that is asked."""
        ensemble = metadata.ensemble_of(entry_id)
        slots = write_set(entry_id, metadata.ensemble_size, metadata.write_quorum)
        members = [ensemble[slot] for slot in slots if ensemble[slot] not in without]
        copies, body = {}, None
        for bookie in members:
            copies[bookie], found = await self._read(metadata, bookie, entry_id, done)
            body = body or found
        if has_diverged(copies):
            sound = sorted(bookie for bookie, copy in copies.items() if copy.verdict is Verdict.SOUND)
            done.diverged.add(entry_id, ", ".join(sound))
            _log.error(
                "copies of an entry differ though their digests are right: none is changed",
                ledger_id=done.ledger_id,
                entry_id=entry_id,
                bookies=sound,
            )
            return True
        for bookie, copy in copies.items():
            if copy.verdict is Verdict.DAMAGED:
                done.damaged.add(entry_id, bookie)
                if self._mend and body is not None:
                    replaced = ReplicaCopies(done.ledger_id, metadata, bookie, self._ports)
                    done.replaced += await replaced.replace(entry_id, body)
        return False

    async def _read(
        self, metadata: LedgerMetadata, bookie: BookieId, entry_id: int, done: Scrubbed
    ) -> tuple[Copy, memoryview | None]:
        """One copy, and its body if it is sound."""
        answer = await self._ports.transport.read(bookie, done.ledger_id, entry_id)
        if answer.status is V2Status.OK and answer.body is not None:
            if self._pace is not None:
                await self._pace(len(answer.body))
            digest = digest_for(metadata.digest_type, metadata.password)
            try:
                header, payload = verify_body(answer.body, done.ledger_id, entry_id, digest)
            except DigestMismatch:
                self._ports.metrics.digest_mismatches.inc()
                return Copy(Verdict.DAMAGED), None
            return Copy(Verdict.SOUND, (header.length, bytes(payload))), answer.body
        if answer.status is V2Status.IO_ERROR:
            return Copy(Verdict.DAMAGED), None
        if answer_of(answer.status) is Answer.NEVER_HAD:
            return Copy(Verdict.MISSING), None
        done.unanswered.setdefault(bookie, str(answer.error or answer.status))
        return Copy(Verdict.UNANSWERED), None


def _owed(metadata: LedgerMetadata) -> dict[BookieId, list[range]]:
    """The entries that each bookie owes in fragments with a fixed end."""
    owed: dict[BookieId, list[range]] = {}
    for fragment in fixed_fragments(metadata):
        for slot, bookie in enumerate(fragment.bookies):
            entries: Iterable[range] = slot_entries(metadata, fragment, slot)
            owed.setdefault(bookie, []).extend(entries)
    return {bookie: entries for bookie, entries in sorted(owed.items()) if entries}
