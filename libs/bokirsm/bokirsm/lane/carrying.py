"""Rewriting the states of idle machines out of old terms, so that their storage can be reclaimed.

    async with Carrier(log, [store.carried(), bokirsm.carried(log)], who="host-7"): ...

Hosts do it themselves; a program of several libraries can do it for all of them.

- The newest snapshot of a machine whose oldest part is as old as a term is appended again, with the expectation that no record has joined
  the machine's stream since it was read. The records before the copy are trimmed after it is in the log.
- The creation of a machine by key, which no host has handled, is appended again to the machine's stream alone.
- The snapshot of a machine that halted goes once its partition has no record of it any more; with a key after its retention, so that the
  key is free again from then on.
- Answers that no process has read for so long are trimmed.
- What partitions have (messages, commits, checkpoints, claims) belongs to their owners. A group without hosts keeps its terms.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

import boki
from boki_common.errors import BokiError, Conflict, Trimmed
from boki_common.logs import get_logger
from bokilib.append.log import Log, Read
from bokilib.records import tags
from bokilib.records.conflict_rules import Expected
from bokilib.records.contribution import Contribution
from bokilib.retention.checkpoint_rules import RETENTION_MS
from bokilib.retention.rewritten_states import State, append_states
from bokilib.retention.trimmer import Trimmer
from bokirsm.lane import loading
from bokirsm.lane.loading import Head, MachineStream
from bokirsm.model.events import LIBRARY, PICKER, Created, PartRef, Snapshot
from bokirsm.model.machine_state import decode_state, rows_of_state
from bokirsm.model.parts import KeptParts, compose

REPLIES: Final = tags.rsm_replies("")
"""The beginning of the tags of answers."""

log = get_logger(__name__)


class _Idle(NamedTuple):
    """A machine with an old record: the position as of which its stream was read, and what it has."""

    name: str
    group: str
    position: int
    found: MachineStream

    @property
    def tag(self) -> str:
        return tags.rsm_machine(self.group, self.name)


class RsmCarried:
    """The machines of one book, for a `bokilib.Carrier`. Implements `bokilib.retention.carrier.Carries`."""

    def __init__(self, opened: Log, retention_ms: int) -> None:
        self._log: Final = opened
        self._retention_ms: Final = retention_ms
        self._trimmer: Final = Trimmer(opened.book)
        self._machines: dict[str, None] = {}
        self._replies: dict[str, int] = {}

    @property
    def library(self) -> str:
        return LIBRARY

    def collect(self, read: Read) -> int:
        """Note the machines with a snapshot or creation in a record, and the processes with answers; return their number."""
        for event in PICKER.of(read.record.seqnum, read.envelope):
            if isinstance(event, (Snapshot, Created)):
                self._machines[event.id] = None
        for tag in read.record.tags:
            if isinstance(tag, str) and tag.startswith(REPLIES):
                self._replies[tag] = read.record.seqnum + 1
        return len(self._machines) + len(self._replies)

    async def carry(self, now_ms: int, fence: Expected, *, carry_ms: int) -> tuple[int, int]:
        """Rewrite the noted machines that are due; see `Carries.carry`."""
        machines, self._machines = list(self._machines), {}
        replies, self._replies = self._replies, {}
        for tag, before in replies.items():
            self._trimmer.add(tag, before, forget=True)
        idle: list[_Idle] = []
        carried = unreadable = 0
        for id in machines:
            try:
                one = await self._read(id)
                if one is None or await self._is_gone(one, now_ms, carry_ms):
                    continue
                if not _is_due(one.found, now_ms, carry_ms):
                    self._trim(one)
                elif one.found.head is not None and one.found.head.event.refs:
                    carried += await self._rewrite_parts(one, one.found.head, fence)
                else:
                    idle.append(one)
            except BokiError as error:
                if error.retryable or isinstance(error, Conflict):
                    raise
                log.warning("machine not rewritten: its term is kept", machine=id, error=str(error))
                unreadable += 1
        carried += await self._rewrite(idle, fence)
        await self._trimmer.flush()
        return carried, unreadable

    async def tend(self) -> None:
        """Do nothing: machines have no other upkeep here."""

    async def _read(self, id: str) -> _Idle | None:
        """Return a machine with a stream; None if it moves now."""
        group, name = id.split("/", 1)
        position = await self._log.book.now()
        try:
            found = await loading.read_machine(self._log, group, name, at_most=position)
        except Trimmed:
            return None  # its owner writes it
        return None if found == MachineStream() else _Idle(name, group, position, found)

    def _trim(self, one: _Idle) -> None:
        """Trim what the newest snapshot, which is not due, has replaced."""
        if one.found.head is not None:
            self._trimmer.add(one.tag, one.found.head.first)

    async def _rewrite(self, idle: list[_Idle], fence: Expected) -> int:
        """Append the states of machines again, many a record. Return their number."""
        states = []
        for one in idle:
            if one.found.head is not None:
                states.append(State(one.tag, one.position, one.found.head.event))
            elif one.found.created is not None:
                states.append(State(one.tag, one.position, one.found.created[2]))
        made = await append_states(self._log, states, fence)
        for tag, seqnum in made.items():
            self._trimmer.add(tag, seqnum)
        return len(made)

    async def _rewrite_parts(self, one: _Idle, head: Head[Snapshot], fence: Expected) -> int:
        """Append a large state again, part by part. Return 1, or 0 if its owner wrote it meanwhile.

        Raises:
            Conflict: the fence was claimed by another process.
        """
        header, rows = rows_of_state(decode_state(head.data))
        composed = compose(header, rows, KeptParts(), 0, 1)
        event, count, last = head.event, len(composed.parts), one.position
        refs: list[PartRef] = []
        for number, part in enumerate([*composed.parts, None]):
            data = composed.data if part is None else part.data
            written = Snapshot(event.id, event.k, number, count + 1, data, event.halted, event.partition)
            if part is None:
                written = msgspec.structs.replace(written, digest=event.digest, kind=event.kind, refs=tuple(refs))
            expect = {**fence, one.tag: last}
            try:
                last = await self._log.append(Contribution((one.tag,), expect, (written,)), settle=True)
            except Conflict as conflict:
                if one.tag in self._log.moved(expect, conflict):
                    return 0
                raise
            refs.append(PartRef(last, number))
        self._trimmer.add(one.tag, refs[0].seqnum)
        return 1

    async def _is_gone(self, one: _Idle, now_ms: int, carry_ms: int) -> bool:
        """Return whether a machine halted so long ago that its snapshot goes, and trim it then.

        It is needed while a commit of the machine is in its partition: a load would miss the commits before.
        """
        head = one.found.head
        if head is None or not head.event.halted:
            return False
        ended_ms = decode_state(head.data).at_ms
        if now_ms - ended_ms < (max(self._retention_ms, carry_ms) if head.event.digest else carry_ms):
            return False
        checkpoint = await loading.read_checkpoint(self._log, one.group, head.event.partition)
        if checkpoint is None:
            return False
        tag = tags.rsm_partition(one.group, head.event.partition)
        async for item in self._log.book.read(tag, start=checkpoint.event.covers + 1, stop=one.position + 1):
            if isinstance(item, boki.Record):
                if item.time_ms - ended_ms < carry_ms:
                    return False
                break
        self._trimmer.add(one.tag, one.position + 1, forget=True)
        return True


def _is_due(found: MachineStream, now_ms: int, carry_ms: int) -> bool:
    """Return whether a state is so old that it is rewritten."""
    time_ms = (
        found.head.time_ms if found.head is not None else found.created[1] if found.created is not None else now_ms
    )
    return now_ms - time_ms >= carry_ms


def carried(opened: Log, *, retention_s: float = RETENTION_MS / 1_000) -> RsmCarried:
    """Return the machines of a book for a `bokilib.Carrier`, which rewrites their old records.

    Args:
        opened: the log of the book.
        retention_s: seconds for which the key of a machine that halted cannot be used again.
    """
    return RsmCarried(opened, round(retention_s * 1_000))
