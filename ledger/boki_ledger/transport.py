"""The seam between the ledger client's coroutines and the network: adds in channels, reads as futures.

A *channel* carries the adds of one writer (or one recovery) of one ledger to one bookie. It reconnects by itself; going down
means that every unanswered add is unknown, coming up that they may be sent again.

Rules of every implementation:
- An answer is delivered to the channel whose add it answers, never to another channel of the same ledger, though BookKeeper's v2
  answers name only ledger and entry. The same for reads: an answer to a plain read never counts for a fencing one.
- A listener is never called from within a call of the channel or of the transport; always later, from the event loop.
- Answers come in batches: one call per channel and network read.
- Nobody here retries a request, and no time-out is ever turned into a *no*: an answer whose status is None is *unknown*.

Adds, reads and batch reads are asked in v2; what v2 has not (deferred sync, LACs by themselves, long polls, force, lists of
entries, disk space) in v3; holds, which only bookies of ours know, in v2. The futures of these and of holds always end: with an
answer, or unknown once `answer_timeout_s` is over.

`bookie_client.BookieNetwork` is the real one; the tests have one that is stepped by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from boki_common.bookkeeper.status import V2Status
from boki_common.errors import BokiError
from boki_common.ids import BookieId
from boki_common.runtime.ports import Buffer


class ChannelListener(Protocol):
    """The user of a channel, which sends adds through it."""

    def channel_up(self) -> None:
        """Adds can be sent now; what was sent before and not answered must be sent again."""

    def channel_down(self, error: BokiError) -> None:
        """The connection ended, or the first attempt to make one failed. Called once per change, the channel keeps trying."""

    def adds_answered(self, acked: Sequence[tuple[int, int]], refused: Sequence[tuple[int, V2Status]]) -> None:
        """Answers of one network read.

        Args:
            acked: runs (first entry, count) that the bookie made durable.
            refused: (entry, status), never OK.
        """


class AddChannel(Protocol):
    """See the module."""

    @property
    def up(self) -> bool:
        """Whether adds reach the bookie now."""

    def send(self, frame: Sequence[Buffer]) -> None:
        """Sends one whole add frame. Ignored while the channel is down."""

    def send_all(self, frames: Sequence[Sequence[Buffer]], count: int, buffers: Sequence[Buffer]) -> None:
        """Sends `count` of them, one after another; `buffers` are the same bytes, in pieces that are cheap to send."""

    def drop(self, error: BokiError) -> None:
        """The bookie answers no more: ends the connection. `channel_down(error)` follows, then reconnecting."""

    def close(self) -> None:
        """Ends the channel: the listener is not called any more. Idempotent."""


class ReadAnswer(NamedTuple):
    """The answer of one bookie to one read; `status` is None if no answer came, and `error` is the reason then."""

    status: V2Status | None
    body: memoryview | None = None
    error: BokiError | None = None
    connection: int = 0
    """Which of the connections to this bookie it came on: two answers with one number are from one process."""


class BatchAnswer(NamedTuple):
    """The answer of one bookie to one batch read: bodies of consecutive entries from the one that was asked for.

    With fewer than were asked for, nothing is known about the next one.
    """

    status: V2Status | None
    bodies: list[memoryview]
    error: BokiError | None = None


class Outcome(NamedTuple):
    """The answer of one bookie to a LAC write or a force."""

    status: V2Status | None
    error: BokiError | None = None


class LacAnswer(NamedTuple):
    """The answer of one bookie to a LAC read; neither body is verified, each may be missing whatever the status is."""

    status: V2Status | None
    explicit: memoryview | None = None
    """The LAC that the writer sent by itself, see `explicit_lac`."""
    last_entry: memoryview | None = None
    """The last entry that the bookie stores."""
    error: BokiError | None = None


class PollAnswer(NamedTuple):
    """The answer of one bookie to a long poll."""

    status: V2Status | None
    lac: int | None = None
    """The LAC as the bookie knows it: unverified, no digest covers it."""
    body: memoryview | None = None
    """The entry after the LAC that was named, if it is confirmed and stored there."""
    error: BokiError | None = None


class SpaceAnswer(NamedTuple):
    """The space of one bookie's disk."""

    status: V2Status | None
    total_bytes: int | None = None
    free_bytes: int | None = None
    error: BokiError | None = None


class EntriesAnswer(NamedTuple):
    """Which entries one bookie stores: `boki_common.bookkeeper.availability` reads it."""

    status: V2Status | None
    availability: bytes | None = None
    error: BokiError | None = None


class BookieTransport(Protocol):
    """All bookies, by id."""

    def open_channel(
        self, bookie: BookieId, ledger_id: int, listener: ChannelListener, *, deferred_sync: bool = False
    ) -> AddChannel:
        """A channel, perhaps up at once (`channel_up` is called for later changes only). Raises Overloaded.

        With `deferred_sync` the bookie may acknowledge before an entry is durable; a later `force` is on the same
        connection as the adds, so that a bookie which was away in between is noticed as the channel going down.
        """

    def read(
        self, bookie: BookieId, ledger_id: int, entry_id: int, *, fence_key: bytes | None = None
    ) -> asyncio.Future[ReadAnswer]:
        """Asks for an entry, -1 for the last one stored; with `fence_key` (the master key) the bookie fences the ledger.

        The future never fails; it may never end if the bookie hangs, so wait with a time-out. Cancel it to forget it.
        """

    def read_batch(
        self, bookie: BookieId, ledger_id: int, entry_id: int, *, max_count: int, max_bytes: int
    ) -> asyncio.Future[BatchAnswer]:
        """Asks for consecutive entries: at most `max_count`, in a frame of at most `max_bytes`. The future is as `read`'s."""

    def serves_batches(self, bookie: BookieId) -> bool:
        """Whether batch reads may be asked of the bookie: not of one that was seen to know none (older than Apache 4.17)."""

    def read_lac(self, bookie: BookieId, ledger_id: int) -> asyncio.Future[LacAnswer]:
        """Asks for the LAC that was sent by itself, and for the last entry."""

    def write_lac(self, bookie: BookieId, ledger_id: int, master_key: bytes, body: bytes) -> asyncio.Future[Outcome]:
        """Sends a LAC by itself (`explicit_lac` makes its body); OK once it is durable."""

    def force(self, bookie: BookieId, ledger_id: int) -> asyncio.Future[Outcome]:
        """OK once all that the bookie took of the ledger before is durable."""

    def wait_for_lac(
        self, bookie: BookieId, ledger_id: int, previous_lac: int, *, wait_s: float
    ) -> asyncio.Future[PollAnswer]:
        """Long poll: answered when the bookie knows a LAC above `previous_lac`, the ledger is fenced, or `wait_s` is over."""

    def bookie_info(self, bookie: BookieId) -> asyncio.Future[SpaceAnswer]:
        """Asks how large the bookie's disk is, and how much of it is free."""

    def list_entries(self, bookie: BookieId, ledger_id: int) -> asyncio.Future[EntriesAnswer]:
        """Asks which entries of the ledger the bookie stores."""

    def hold_ledger(self, bookie: BookieId, ledger_id: int, master_key: bytes, version: int) -> asyncio.Future[Outcome]:
        """OK once the bookie noted, durably, that it drops nothing of the ledger by a reading of its metadata at `version` or
        before. Only for bookies of ours: others end the connection at such a request."""

    def seems_up(self, bookie: BookieId) -> bool:
        """Whether the last attempt to reach the bookie succeeded, or none was made: an order of preference, no proof."""


class BookieRegistry(Protocol):
    """Which bookies are there and take writes."""

    def writable(self) -> tuple[BookieId, ...]:
        """Bookies that are registered and not read-only, sorted."""

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls back, on the event loop, after each change of them; returns what ends that, and may be called again."""


class BookieChooser(BookieRegistry, Protocol):
    """Which bookies new entries may go to: `writable` names those that are healthy, too (`bookie_health`)."""

    def quarantined(self) -> tuple[BookieId, ...]:
        """Bookies that are registered and not read-only, but failed too often lately; sorted."""

    def is_quarantined(self, bookie: BookieId) -> bool:
        """Whether a bookie, registered or not, failed too often lately."""

    def failed(self, bookie: BookieId) -> None:
        """Called for each add, read or connection that a bookie failed."""


class Bookies(BookieTransport, BookieRegistry, Protocol):
    """Both at once: a whole network of bookies, as tests and simulations give it to `LedgerClient`."""
