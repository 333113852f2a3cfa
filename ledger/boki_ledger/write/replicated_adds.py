"""Sends entries to their write sets, counts acks, sends again: the machinery under the writer and under recovery.

Invariants:
- Every slot that is *ready* has been sent every entry in flight that it should store and has not acknowledged, on its present
  connection, or will be at the end of this turn of the loop (`_unsent`, the last entries, for all slots that are ready then).
  So coming back and taking over a slot are the same step: send what is pending, once the others have what is unsent.
- Entries are forgotten once they complete, but for the last, if it is small: sent again it proves that nobody has fenced the
  ledger (`unfenced`). Frames are shared by all replicas.
- After `replace` the order is: clear all acks of all replaced slots, send again, and only then may the owner complete.

A slot that fails keeps its place until its owner replaces it; meanwhile its bookie is tried again, and entries complete as
long as Qa others acknowledge them. It decides nothing about metadata: the owner (`AddsOwner`) does.

Entries of a *control* ledger use the reserve of bookies with full disks, where Qa bookies would not take them else: a slot that was
refused as READ_ONLY is sent high-priority adds then (`on_reserve`), until it is replaced, its bookie takes writes again, or Qa
others do without a reserve.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

from boki_common import limits
from boki_common.bookkeeper.status import V2Status
from boki_common.bookkeeper.v2 import as_control
from boki_common.errors import BokiError, CallTimeout, LedgerError, LedgerFenced, Unauthorized
from boki_common.ids import BookieId
from boki_common.logs import get_logger
from boki_common.runtime.ports import Buffer
from boki_ledger.ports import LedgerPorts
from boki_ledger.rules.acks import AckTracker
from boki_ledger.rules.unfenced import Mark, UnfencedChecks
from boki_ledger.rules.write_set import write_sets
from boki_ledger.transport import AddChannel

EARLY_SEND_BYTES: Final = 32 * limits.KIB
"""With so much unsent there is nothing to win by waiting for the end of the turn."""

JOINED_BYTES: Final = 8_192
"""Entries up to this size, on average, are joined once for all replicas, instead of sent in pieces to each."""

_log = get_logger("ledger")


class AddsOwner(Protocol):
    """Who uses `ReplicatedAdds`. Called synchronously from the network's callbacks, after a whole batch."""

    def acks_arrived(self) -> None:
        """Some entries may be complete: call `advance`."""

    def slots_failed(self) -> None:
        """Some slots are failing (called again from time to time while entries are in flight): see `failing_slots`."""

    def bookie_failed(self, bookie: BookieId) -> None:
        """A bookie that worked, or was not tried before, fails: called once until it works again."""

    def adds_refused(self, error: BokiError) -> None:
        """The ledger is fenced, or the password is wrong. The last call."""


class ReplicatedAdds:
    """See the module."""

    def __init__(
        self,
        *,
        ledger_id: int,
        ensemble: Sequence[BookieId],
        write_quorum: int,
        ack_quorum: int,
        lac: int,
        owner: AddsOwner,
        ports: LedgerPorts,
        deferred_sync: bool = False,
        control: bool = False,
    ) -> None:
        self.acks = AckTracker(ensemble_size=len(ensemble), write_quorum=write_quorum, ack_quorum=ack_quorum, lac=lac)
        self.bytes_in_flight = 0
        self.ledger_id = ledger_id
        self.owner = owner
        self.ports = ports
        self.deferred_sync = deferred_sync
        self.control = control
        self.loop = asyncio.get_running_loop()
        self.closed = False
        self._write_sets = write_sets(len(ensemble), write_quorum)
        self._entries: deque[tuple[Sequence[Buffer], int]] = deque()
        """Frame and size of each entry in flight."""
        self._last_complete: Sequence[Buffer] | None = None
        """The frame of the entry at LAC, if it is small and was sent to the present ensemble."""
        self.checks = UnfencedChecks(ack_quorum, self._repeat)
        self._unsent: list[Sequence[Buffer]] = []
        self._unsent_bytes = 0
        self._tick: asyncio.TimerHandle | None = None
        self._head = -1
        self._head_since = 0.0
        self.some_fail = False
        """Whether there are `slots_to_replace`."""
        self._slots = [_Slot(self, index, bookie) for index, bookie in enumerate(ensemble)]
        for slot in self._slots:
            slot.open()

    @property
    def ensemble(self) -> tuple[BookieId, ...]:
        return tuple(slot.bookie for slot in self._slots)

    def replicas(self, entry_id: int) -> list[BookieId]:
        """The bookies of the write set of an entry, in the present ensemble."""
        return [self._slots[index].bookie for index in self._write_sets[entry_id % len(self._slots)]]

    def add(self, frame: Sequence[Buffer], size: int, *, now: bool = False) -> int:
        """Sends the next entry, at the end of this turn or `now`; returns its id. `size` counts towards `bytes_in_flight`."""
        acks = self.acks
        entry_id = acks.submit()
        self._entries.append((frame, size))
        self.bytes_in_flight += size
        first = not self._unsent
        self._unsent.append(frame)
        self._unsent_bytes += size
        if now or (self._unsent_bytes >= EARLY_SEND_BYTES and not first):
            self._send_unsent()
        elif first:
            self.loop.call_soon(self._send_unsent)
        if entry_id == acks.lac + 1 and (self._tick is None or self.some_fail):
            self._begin()
        return entry_id

    def _repeat(self) -> list[Mark] | None:
        """Sends the last complete entry again to all of its write set that are ready, if they are enough."""
        frame, acks = self._last_complete, self.acks
        if frame is None or acks.frozen:
            return None
        slots = [slot for index in self._write_sets[acks.lac % len(self._slots)] if (slot := self._slots[index]).ready]
        if len(slots) < acks.ack_quorum:
            return None
        marks = [Mark(slot, slot.connection, slot.sent) for slot in slots]
        for slot in slots:
            slot.send((frame,), 1, frame)
        return marks

    def _send_unsent(self) -> None:
        """What the turn of the loop brought goes out with one call per bookie."""
        frames, self._unsent = self._unsent, []
        size, self._unsent_bytes = self._unsent_bytes, 0
        count = len(frames)
        if not count:
            return
        if self.acks.striped:
            self._send_stripes(frames, size // count)
            return
        buffers = frames[0] if count == 1 else _buffers(frames, size)
        for slot in self._slots:
            if slot.ready:
                slot.send(frames, count, buffers)

    def _send_stripes(self, frames: list[Sequence[Buffer]], mean_size: int) -> None:
        """As `_send_unsent`, to each slot its own."""
        shares: list[list[Sequence[Buffer]]] = [[] for _ in self._slots]
        for entry_id, frame in enumerate(frames, self.acks.last + 1 - len(frames)):
            for index in self._write_sets[entry_id % len(shares)]:
                shares[index].append(frame)
        for slot, share in zip(self._slots, shares, strict=True):
            if slot.ready and share:
                count = len(share)
                slot.send(share, count, _buffers(share, mean_size * count))

    def advance(self) -> int:
        """Completes entries; returns by how many LAC moved."""
        done = self.acks.advance()
        if done:
            for _ in range(done - 1):
                self.bytes_in_flight -= self._entries.popleft()[1]
            frame, size = self._entries.popleft()
            self.bytes_in_flight -= size
            self._last_complete = frame if size <= JOINED_BYTES else None
            self.ports.metrics.entries_acked.value += done
        return done

    def failing_slots(self) -> list[int]:
        """Slots whose bookie failed and did not come back yet, ascending."""
        return [slot.index for slot in self._slots if slot.failure is not None]

    def slots_to_replace(self) -> list[int]:
        """Slots that fail, or use the reserve of a full disk, ascending."""
        return [slot.index for slot in self._slots if slot.failure is not None or slot.on_reserve]

    @property
    def in_reserve(self) -> bool:
        """Whether entries are acknowledged from the reserves of bookies whose disks are full."""
        return any(slot.on_reserve for slot in self._slots)

    def needs_reserve(self) -> bool:
        """Whether too few bookies acknowledge entries, or are not known to refuse them."""
        taking = sum(slot.on_reserve or (slot.ready and not slot.read_only) for slot in self._slots)
        return self.control and taking < self.acks.ack_quorum

    def leave_reserve(self) -> None:
        """Uses reserves no longer where enough bookies take writes without."""
        if self.in_reserve and sum(slot.ready and not slot.read_only for slot in self._slots) >= self.acks.ack_quorum:
            for slot in self._slots:
                slot.on_reserve = False
            _log.info("control ledger leaves the reserves of full disks", ledger_id=self.ledger_id)
            self.slots_changed()

    def writable_changed(self, writable: Collection[BookieId]) -> None:
        """These bookies take writes, as they say."""
        for slot in self._slots:
            if slot.read_only and slot.bookie in writable:
                slot.read_only = slot.on_reserve = False
                self.slots_changed()
        self.leave_reserve()

    def ready_slots(self) -> int:
        """How many bookies take adds now."""
        return sum(slot.ready for slot in self._slots)

    def replace(self, replacements: Mapping[int, BookieId]) -> None:
        """Other bookies take slots. Only while frozen and once the change is committed, wherever that is."""
        self.acks.replace(sorted(replacements))
        self._last_complete = None
        for index in sorted(replacements):
            self._slots[index].close()
            self._slots[index] = _Slot(self, index, replacements[index])
        self.slots_changed()
        for index in sorted(replacements):
            self._slots[index].open()

    def close(self) -> None:
        """Forgets all entries in flight, without further calls. Idempotent."""
        self.closed = True
        self.checks.close()
        for slot in self._slots:
            slot.close()
        if self._tick is not None:
            self._tick.cancel()
        self._entries.clear()
        self._unsent.clear()
        self.bytes_in_flight = 0

    def slots_changed(self) -> None:
        """A slot began to fail, or ceased to, or has another bookie."""
        self.checks.interrupted()
        self.some_fail = any(slot.failure is not None or slot.on_reserve for slot in self._slots)

    def resend(self, slot: _Slot) -> None:
        """Sends a slot that is not ready what it lacks; nothing is unsent then, neither to it nor to others."""
        assert slot.channel is not None and not slot.ready
        self._send_unsent()
        pending = iter(self.acks.pending(slot.index))
        entry_id = next(pending, None)
        resent = 0
        first = self.acks.lac + 1
        for offset, (frame, _) in enumerate(self._entries):
            if entry_id is None:
                break
            if first + offset == entry_id:
                slot.channel.send(as_control(frame) if slot.on_reserve else frame)
                slot.sent += 1
                resent += 1
                entry_id = next(pending, None)
        if resent:
            self.ports.metrics.entries_resent.inc(resent)

    def _begin(self) -> None:
        """The first entry in flight: starts the timer that watches it, or reports slots that failed while it was idle."""
        if self._tick is None:
            self._head, self._head_since = self.acks.lac + 1, self.loop.time()
            self._tick = self.loop.call_later(self.ports.settings.answer_timeout_s / 4, self._check_head)
        if self.some_fail:
            self.loop.call_soon(self._report_failing)

    def _report_failing(self) -> None:
        if not self.closed and self.some_fail:
            self.owner.slots_failed()

    def _check_head(self) -> None:
        """A bookie that leaves the oldest entry unanswered for the time-out is taken as lost, though others answer."""
        self._tick = None
        if self.closed or not self.acks.in_flight:
            return
        now, limit, head = self.loop.time(), self.ports.settings.answer_timeout_s, self.acks.lac + 1
        if head != self._head or self.acks.frozen:
            self._head, self._head_since = head, now
        elif now - self._head_since >= limit:
            for index in self._write_sets[head % len(self._slots)]:
                slot = self._slots[index]
                if slot.ready and now - slot.ready_since >= limit and not self.acks.has_ack(index, head):
                    slot.drop(
                        CallTimeout(
                            f"bookie {slot.bookie} left entry {head} of ledger {self.ledger_id} unanswered for {limit} s",
                            bookie_id=slot.bookie,
                        )
                    )
        self._tick = self.loop.call_later(limit / 4, self._check_head)
        self._report_failing()


class _Slot:
    """One (slot, generation): a bookie and the channel to it. Listens to the channel."""

    def __init__(self, adds: ReplicatedAdds, index: int, bookie: BookieId) -> None:
        self.index = index
        self.bookie = bookie
        self.channel: AddChannel | None = None
        self.ready = False
        self.ready_since = 0.0
        self.failure: BokiError | None = None
        self.read_only = False
        """Whether the bookie refused the last normal add as its disk is full."""
        self.on_reserve = False
        """Whether it is sent high-priority adds, for that."""
        self.connection = 0
        self.sent = 0
        self.answered = 0
        self._adds = adds
        self._generation = adds.acks.generation(index)
        self._retry: asyncio.TimerHandle | None = None
        self._backoff = adds.ports.settings.backoff()

    def open(self) -> None:
        self._retry = None
        adds = self._adds
        self.channel = adds.ports.transport.open_channel(
            self.bookie, adds.ledger_id, self, deferred_sync=adds.deferred_sync
        )
        if self.channel.up:
            self.channel_up()

    def close(self) -> None:
        self.ready = False
        channel, self.channel = self.channel, None
        if channel is not None:
            channel.close()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def send(self, frames: Sequence[Sequence[Buffer]], count: int, buffers: Sequence[Buffer]) -> None:
        """To a slot that is ready, as `AddChannel.send_all`."""
        assert self.channel is not None
        self.sent += count
        if self.on_reserve:
            frames = [as_control(frame) for frame in frames]
            buffers = [buffer for frame in frames for buffer in frame]
        self.channel.send_all(frames, count, buffers)

    def drop(self, error: BokiError) -> None:
        if self.channel is not None:
            self.channel.drop(error)

    def channel_up(self) -> None:
        self.ready = False
        self.failure = None
        self.connection += 1
        self.sent = self.answered = 0
        self.ready_since = self._adds.loop.time()
        self._adds.slots_changed()
        self._adds.resend(self)
        self.ready = True

    def channel_down(self, error: BokiError) -> None:
        self.ready = False
        self._failed(error)

    def adds_answered(self, acked: Sequence[tuple[int, int]], refused: Sequence[tuple[int, V2Status]]) -> None:
        adds = self._adds
        if acked:
            self._backoff.reset()
            if adds.some_fail and not self.on_reserve:
                self.read_only = False
                adds.leave_reserve()
            some_complete = False
            try:
                for first, count in acked:
                    self.answered += count
                    if adds.acks.acked(self.index, self._generation, first, count):
                        some_complete = True
            finally:  # what a bookie acknowledged before it went wrong counts
                if some_complete:
                    adds.owner.acks_arrived()
            if adds.checks.open:
                adds.checks.answered()
        if refused and self.channel is not None:
            self._refused(*refused[0])

    def _refused(self, entry_id: int, status: V2Status) -> None:
        adds = self._adds
        facts = {"ledger_id": adds.ledger_id, "entry_id": entry_id, "bookie_id": self.bookie}
        if status is V2Status.FENCED:
            adds.owner.adds_refused(
                LedgerFenced(
                    f"ledger {adds.ledger_id} is fenced on bookie {self.bookie}: someone recovers or recovered it; open it "
                    "to see what it has, and write to a new one",
                    **facts,
                )
            )
            return
        if status is V2Status.UNAUTHORIZED:
            adds.owner.adds_refused(
                Unauthorized(f"bookie {self.bookie} refuses the password of ledger {adds.ledger_id}", **facts)
            )
            return
        self.close()
        if status is V2Status.READ_ONLY:
            self.read_only, self.on_reserve = True, False
            if adds.needs_reserve():
                self.on_reserve = True
                _log.warning(
                    "control ledger uses the reserve of a full disk", ledger_id=adds.ledger_id, bookie_id=self.bookie
                )
        self._retry = adds.loop.call_later(self._backoff.next(), self.open)
        self._failed(
            LedgerError(f"bookie {self.bookie} answered {status.name} to entry {entry_id}", status=int(status), **facts)
        )

    def _failed(self, error: BokiError) -> None:
        adds = self._adds
        if self.failure is None:
            adds.ports.metrics.slot_failures.inc()
            adds.owner.bookie_failed(self.bookie)
            _log.info("bookie of a ledger fails", ledger_id=adds.ledger_id, bookie_id=self.bookie, error=error)
        self.failure = error
        adds.slots_changed()
        adds.owner.slots_failed()


def _buffers(frames: Sequence[Sequence[Buffer]], size: int) -> Sequence[Buffer]:
    """The frames one after another, in one buffer unless they are large; `size` is that of their payloads."""
    pieces = list(itertools.chain.from_iterable(frames))
    return (b"".join(pieces),) if size <= JOINED_BYTES * len(frames) else pieces
