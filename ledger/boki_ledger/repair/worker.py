"""Repairs one ledger: its missing copies are made on other bookies, which then get the places of the lost ones.

    1  read the metadata, at version v; `plan` says which slots move to whom
    2  HOLD: each target notes, durably, that it may drop nothing of the ledger that a reading of version v or older allows
    3  copy: what a target lacks is read from its peers and sent to it (`replica_copies`); done when it is durable there
    4  one compare-and-swap, at exactly v, names the targets
    5  each member of the changed fragments lists what it has, and gets what it lacks

Whoever changes the metadata meanwhile makes the swap fail: it starts over at 1, and copies that were made are found there. A swap
whose outcome is unknown is repeated at v until the version has moved. A worker that is stopped anywhere, or goes on after
another took its place, costs no copy (`ledger/tests/models`): nothing that it relies on ends with it.

Only bookies of ours are targets (their cookie has our mark): others know no HOLD, and may drop a copy while it is being named. A
slot whose entries were not all copied stays as it is. An entry that a peer still has is never replaced by anything but a
body whose digest is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import Final

from boki_common.bookkeeper.digests import master_key
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import BadVersion, BokiError, MetadataError, NoSuchLedger
from boki_common.ids import BookieId
from boki_common.logs import get_logger
from boki_ledger.metadata.metadata_update import SeenMetadata
from boki_ledger.ports import LedgerPorts
from boki_ledger.read.replica_copies import Copied, Pace, ReplicaCopies
from boki_ledger.repair.plan import Blocker, Move, Plan, applied, fixed_fragments, plan_ledger, slot_entries

ATTEMPTS: Final = 10
"""Conflicts and refusing targets after which a ledger is left to the next round."""

_log = get_logger("repair")


class Outcome(Enum):
    """The result of one repair of one ledger."""

    REPAIRED = "repaired"
    """Each slot that could move has moved."""
    NOTHING = "nothing to do"
    GONE = "the ledger was deleted"
    BLOCKED = "blocked"
    """Some copies are missing still; `faults` has the reasons."""


@dataclass(slots=True)
class Repaired:
    """What was done for a ledger."""

    ledger_id: int
    outcome: Outcome = Outcome.NOTHING
    moved: int = 0
    """Slots of fragments that another bookie has now."""
    copied: int = 0
    """Entries."""
    copied_bytes: int = 0
    faults: list[str] = field(default_factory=list)
    """Why copies are missing still, for people; each once."""
    lost: tuple[int, ...] = ()
    """Entries that no bookie has whole, the first of them: nothing brings them back but a bookie that returns."""
    refusing: dict[BookieId, None] = field(default_factory=dict)
    """Targets that take no copies now: no later attempt of this repair plans with them."""

    def fault(self, text: str) -> None:
        if text not in self.faults:
            self.faults.append(text)

    def refused(self, target: BookieId, text: str) -> None:
        """Note that a target takes no copies now, and why."""
        self.refusing[target] = None
        self.fault(text)

    def count(self, copied: Copied) -> None:
        self.copied += copied.copied
        self.copied_bytes += copied.copied_bytes

    def conclude(self) -> None:
        """Derive the outcome from what moved and what is missing still."""
        if self.faults:
            self.outcome = Outcome.BLOCKED
        elif self.moved:
            self.outcome = Outcome.REPAIRED


Judge = Callable[[LedgerMetadata], frozenset[BookieId]]
"""The bookies that are lost to a ledger."""


class RepairWorker:
    """See the module. Any number may work at once, on one ledger too."""

    def __init__(self, ports: LedgerPorts, *, pace: Pace | None = None) -> None:
        self._ports = ports
        self._updates = ports.updates
        self._pace = pace

    async def repair(self, ledger_id: int, judge: Judge, targets: Sequence[BookieId]) -> Repaired:
        """Makes the missing copies of a ledger, as far as possible now.

        Args:
            ledger_id: the ledger.
            judge: asked of each version of the metadata that is read.
            targets: bookies that take writes, the preferred ones first.

        Raises:
            MetadataError: the metadata store is away; what was copied is found by the next attempt.
        """
        done = Repaired(ledger_id)
        for _ in range(ATTEMPTS):
            done.faults.clear()  # of an attempt that another one makes up for
            try:
                again = await self._attempt(judge, targets, done)
            except NoSuchLedger:
                done.outcome = Outcome.GONE
                done.faults.clear()
                return done
            except MetadataError:
                raise
            except BokiError as error:
                done.fault(str(error))
                again = False
            if not again:
                break
        else:
            done.fault(f"{ATTEMPTS} attempts met changes of its metadata, or targets that refuse")
        done.conclude()
        return done

    async def _attempt(self, judge: Judge, targets: Sequence[BookieId], done: Repaired) -> bool:
        """One pass over the steps; whether another one is due. Raises NoSuchLedger, MetadataError."""
        seen = await self._updates.read(done.ledger_id)
        lost = judge(seen.metadata)
        named = {bookie for _, bookies in seen.metadata.ensembles for bookie in bookies}
        if not lost & named:
            return False
        plan = await self._plan(seen.metadata, lost, [one for one in targets if one not in done.refusing], done)
        ready: list[Move] = []
        known = len(done.refusing)
        for target in dict.fromkeys(move.target for move in plan.moves):
            ready += await self._filled(seen, target, [m for m in plan.moves if m.target == target], done)
        if not ready:
            return len(done.refusing) > known
        after = await self._name_targets(seen, ready, done)
        if after is None:
            return True
        await self._list_members(after.metadata, {move.fragment for move in ready}, lost, done)
        return len(ready) < len(plan.moves) and len(done.refusing) > known

    async def _plan(
        self, metadata: LedgerMetadata, lost: frozenset[BookieId], targets: Sequence[BookieId], done: Repaired
    ) -> Plan:
        """Plan moves to those of the targets that are ours, and note the bookies that are not replaced. Raises MetadataUnavailable."""
        plan = plan_ledger(metadata, lost, await self._ours(targets))
        for bookie, why in plan.blockers:
            if why is not Blocker.OPEN:  # its writer or recovery mends that
                done.fault(f"bookie {bookie} is not replaced: {why.value}")
        return plan

    async def _name_targets(self, seen: SeenMetadata, ready: Sequence[Move], done: Repaired) -> SeenMetadata | None:
        """Name the targets in the metadata, at exactly the version that was seen; None if the ledger changed meanwhile.

        Raises NoSuchLedger, MetadataError.
        """
        try:
            after = await self._updates.swap_exactly(done.ledger_id, applied(seen.metadata, ready), known=seen)
        except BadVersion as error:
            _log.info("ledger changed during its repair: it is read again", ledger_id=done.ledger_id, error=error)
            return None
        done.moved += len(ready)
        _log.info(
            "ledger repaired",
            ledger_id=done.ledger_id,
            moved=[f"{move.lost} by {move.target} in fragment {move.fragment}" for move in ready],
        )
        return after

    async def _ours(self, targets: Sequence[BookieId]) -> list[BookieId]:
        """Those whose cookie has our mark. Raises MetadataUnavailable."""
        members = await self._updates.members.look(targets)
        return [bookie for bookie in targets if members[bookie].ours]

    async def _filled(self, seen: SeenMetadata, target: BookieId, moves: Sequence[Move], done: Repaired) -> list[Move]:
        """The moves whose entries the target has durably, behind a hold. Raises NoSuchLedger, MetadataError."""
        ready: list[Move] = []
        try:
            refused = await self._hold(seen, target, done.ledger_id)
            if refused:
                done.refused(target, refused)
                return ready
            for move in moves:
                if await self._copied_whole(seen.metadata, move, done):
                    ready.append(move)
        except (NoSuchLedger, MetadataError):
            raise
        except BokiError as error:
            done.refused(target, f"bookie {target} gets no copies now: {error}")
        return ready

    async def _copied_whole(self, metadata: LedgerMetadata, move: Move, done: Repaired) -> bool:
        """Copy the entries of a move to its target; return whether it has all of them durably. Raises BokiError."""
        copied = await self._copies(metadata, move.target, move.entries, done, only_durable=True)
        return not copied.lost.total and not copied.unanswered.total

    async def _hold(self, seen: SeenMetadata, target: BookieId, ledger_id: int) -> str:
        """Why the target does not hold the ledger; empty, if it does."""
        key = master_key(seen.metadata.password)
        answer = await self._ports.transport.hold_ledger(target, ledger_id, key, seen.version)
        if answer.status is V2Status.OK:
            return ""
        why = answer.error if answer.status is None else answer.status.name
        return f"bookie {target} does not hold ledger {ledger_id} for a repair ({why}): is it of an earlier version, or away?"

    async def _copies(
        self,
        metadata: LedgerMetadata,
        target: BookieId,
        entries: Sequence[range],
        done: Repaired,
        *,
        only_durable: bool = False,
    ) -> Copied:
        copies = ReplicaCopies(
            done.ledger_id, metadata, target, self._ports, pace=self._pace, only_durable=only_durable
        )
        copied = await copies.make_whole(chain.from_iterable(entries))
        done.count(copied)
        if copied.lost.total:
            done.lost = tuple(sorted({*done.lost, *copied.lost.entries}))
            done.fault(f"{copied.lost.total} entries from {copied.lost.entries[0]} on are on no bookie whole")
        if copied.unanswered.total:
            done.fault(
                f"{copied.unanswered.total} entries from {copied.unanswered.entries[0]} on are on bookies that do not answer"
            )
        return copied

    async def _list_members(
        self, metadata: LedgerMetadata, fragments: Iterable[int], lost: frozenset[BookieId], done: Repaired
    ) -> None:
        """Each member of the changed fragments lists its entries, and gets those that it lacks. Raises NoSuchLedger,
        MetadataError."""
        fixed = fixed_fragments(metadata)
        for number in sorted(fragments):
            for slot, bookie in enumerate(fixed[number].bookies):
                entries = slot_entries(metadata, fixed[number], slot)
                if bookie in lost or not entries:
                    continue
                try:
                    await self._copies(metadata, bookie, entries, done)
                except (NoSuchLedger, MetadataError):
                    raise
                except BokiError as error:
                    done.fault(f"bookie {bookie} did not list what it has: {error}")
