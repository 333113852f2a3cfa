"""Follows one log: all its terms, in order, each metalog entry once; live from the sequencer, else from ledgers.

`log_followers` runs one for each log of a cluster, over one view and one history of terms; alone, a follower has its own.

    sealed term     its record exists and the view went on: its closed metalog ledger is read, in batches
    current term    the view names it: entries are pushed by its sequencer; those too old for its memory are read from the
                    ledger, which is not recovered for that, up to what the sequencer reports as acknowledged

Rules:
- Only entries that recovery cannot drop are delivered: those of a closed ledger, and those that the sequencer reports its ack
  quorum has. A copy on one bookie proves nothing.
- Entries of a term are delivered from 0 (or `start`) on without a gap, and each once; terms ascend.
- A sequencer that is gone is sought again at its address until the view names another term, and not a moment longer: an
  attempt to reach it ends when the view moves. What it ordered is read meanwhile, once its metalog is closed. While the
  metadata store is away, an established connection goes on, and a lost one is sought where it was.
- A log without a current term has what its sealed terms ordered, and is `idle` behind them.
- What is merely away is tried again, for ever.
- An entry that cannot be read, or cannot follow those before it, is not passed over: that would invent a history. The log *stops*
  before it, and so it does where a term's record and its metalog disagree. The listener is called with place and reason; what is read
  again, from bookies, is retried for ever, since copies can be mended and programs replaced. Other logs go on.
- A fault of the listener ends `run`.

The listener decides what entries mean; this module only decides which come next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.errors import (
    AccessError,
    BokiError,
    CorruptData,
    DigestMismatch,
    MetadataError,
    NetworkError,
    NoSuchEntry,
    ProtocolError,
    TermOver,
    Unreachable,
)
from boki_common.ids import Position, make_position
from boki_common.log_pace import LogPace
from boki_common.logs import get_logger
from boki_common.metadata.store import MetadataStore
from boki_common.net.connection import Address
from boki_common.retry import event_or_timeout, retry
from boki_ledger.ledgers import Ledgers
from boki_metalog.entries.metalog_entry import Close, MetalogEntry, decode
from boki_metalog.follow.follower_session import FollowerSession
from boki_metalog.follow.metalog_reader import MetalogReader
from boki_metalog.follow.sequencer_link import SequencerLink, ShardsOfTerm
from boki_metalog.follow.sequencer_member import address_of
from boki_metalog.follow.term_history import TermHistory
from boki_metalog.settings import FollowerSettings
from boki_metalog.terms.term_info import TermInfo
from boki_metalog.terms.term_record import TermRecord
from boki_metalog.terms.view import FIRST_LOG, Installed, View
from boki_metalog.terms.view_feed import ViewFeed

T = TypeVar("T")

_log = get_logger("follower")


class FollowerListener(Protocol):
    """Gets what is followed. Calls never overlap."""

    async def term_started(self, info: TermInfo) -> None:
        """Before the first entry of each term, also of one that `start` lies in."""

    def entries_ordered(self, term: int, first_entry: int, entries: Sequence[MetalogEntry]) -> None:
        """The next entries of the term; from the network callback when live. Raises EntryRefused: one cannot follow; all before
        it were taken."""

    async def caught_up(self) -> None:
        """Awaited after each batch that was read from a ledger: take the time you need."""

    async def term_ended(self, record: TermRecord) -> None:
        """All entries of the term were delivered."""

    def sequencer_up(self, link: SequencerLink) -> None:
        """The current term can be spoken to; its entries are live."""

    def sequencer_down(self) -> None:
        """The link given last is of no use any more."""

    def idle(self) -> None:
        """The log has no current term, and no slots; all that it ever ordered was delivered."""

    def complete(self) -> None:
        """Nobody serves the current term, and its metalog is closed: all that was ever ordered was delivered."""

    def stopped(self, position: Position, error: BokiError | None) -> None:
        """Nothing can be delivered from this position on, and why; None: now it can."""


class EntryRefused(CorruptData):
    """A listener cannot take a metalog entry: it does not follow those before it, which were taken. `entry`: its number."""


class LogStopped(BokiError):
    """What comes next in the log cannot be had, or not be right."""


class LogFollower:
    """See the module. `run` does everything; cancel it to stop.

    Invariant: every entry of `position.term` below `position.entry` was delivered, and no other of that term.
    """

    def __init__(
        self,
        *,
        metadata: MetadataStore,
        ledgers: Ledgers,
        listener: FollowerListener,
        log: int = FIRST_LOG,
        start: Position | None = None,
        settings: FollowerSettings = FollowerSettings(),  # noqa: B008 - frozen
        feed: ViewFeed | None = None,
        history: TermHistory | None = None,
        token: ClusterToken = NO_TOKEN,
    ) -> None:
        """Made with a `feed`, whose owner reports each new view (`view_changed`); else it has its own."""
        self._token = token
        self._metadata = metadata
        self._ledgers = ledgers
        self._listener = listener
        self._log = log
        self._settings = settings
        self._position = Position(0, 0) if start is None else start
        self._started_term = 0
        self._ended_term = max(self._position.term - 1, 0)
        self._next_pos: int | None = 0
        """Where the next entry must start; None when it is not known (the start is within a term)."""
        self._complete_term = 0
        """The term that nobody serves and of which everything was delivered."""
        self._shards = ShardsOfTerm()
        self._wake = asyncio.Event()
        self._addresses: dict[str, Address] = {}
        self._history = TermHistory(metadata) if history is None else history
        self._feed = feed
        self._stopped: LogStopped | None = None
        """Why nothing is delivered from `position` on."""
        self._reaching: tuple[int, asyncio.Task[Any]] | None = None
        """The term whose sequencer is being spoken to, and the call."""

    @property
    def position(self) -> Position:
        """(term, number of its entries that were delivered)."""
        return self._position

    async def run(self) -> None:
        """Follows the log until it is cancelled. Raises NoSuchLedger: a term's metalog is gone; CorruptData: the view cannot be
        right. Also whatever the listener raises."""
        if self._feed is not None:
            await self._run_on(self._feed)
            return
        feed = self._feed = ViewFeed(self._metadata, self.view_changed, self._settings.backoff())
        feed.start()
        try:
            await self._run_on(feed)
        finally:
            await feed.close()

    def view_changed(self) -> None:
        """The feed has a new view, or ended."""
        self._wake.set()
        if self._reaching is not None and self._feed is not None:
            term, call = self._reaching
            if self._feed.view is not None and self._feed.view.term_of(self._log) != term:
                call.cancel()

    async def _run_on(self, feed: ViewFeed) -> None:
        """Follows the log; where it stops, tries again for ever."""
        backoff = self._settings.backoff()
        while True:
            try:
                await self._run(feed)
            except LogStopped as stop:
                if self._stopped is None:
                    backoff.reset()
                self._stop(stop)
            await event_or_timeout(self._wake, backoff.next())

    def _stop(self, stop: LogStopped) -> None:
        if self._stopped is None or str(stop) != str(self._stopped):
            term, entry = self._position
            _log.error(
                "log stops here: what comes next cannot be applied; see docs/unreadable.md",
                log=self._log, term=term, entry=entry, error=stop,
            )  # fmt: skip
            self._listener.stopped(self._position, stop)
        self._stopped = stop

    def _go_on(self) -> None:
        """Something was delivered."""
        if self._stopped is not None:
            self._stopped = None
            _log.warning("log goes on", log=self._log, term=self._position.term, entry=self._position.entry)
            self._listener.stopped(self._position, None)

    async def _run(self, feed: ViewFeed) -> None:
        complete_below = 0
        while True:
            view = _view_of(feed)
            current = 0 if view is None else view.term_of(self._log)
            if view is not None and (current > self._ended_term or (not current and complete_below < view.next_term)):
                complete_below = current or view.next_term
                for record in await self._sealed_below(complete_below):
                    await self._finish(record)
                if current:
                    await self._follow(feed, view, current)
                elif not view.slots_of(self._log):
                    self._listener.idle()
                continue
            await event_or_timeout(self._wake, None)

    # -- terms

    async def _sealed_below(self, term: int) -> list[TermRecord]:
        await self._retry(self._history.refresh)
        return self._history.sealed(self._log, above=self._ended_term, below=term)

    async def _begin(self, info: TermInfo) -> None:
        if self._started_term == info.term:
            return
        assert info.term > self._started_term, "terms ascend"
        if self._position.term != info.term:
            self._position = Position(info.term, 0)
        self._next_pos = 0 if self._position.entry == 0 else None
        self._started_term = info.term
        self._shards = ShardsOfTerm()
        await self._listener.term_started(info)

    async def _finish(self, record: TermRecord) -> None:
        """Delivers what is left of a sealed term."""
        after = self._history.before(record.term, record.log, record.slots)
        await self._begin(TermInfo(record.term, record.log, record.slots, record.metalog_ledger, after, sealed=True))
        if self._position.entry > record.last_entry + 1:
            raise LogStopped(
                f"term {record.term} ends at entry {record.last_entry}, but {self._position.entry} entries of it were "
                "applied here; do not go on before this is explained"
                + ("" if record.given_up is None else f" (the others were given up: {record.given_up.reason})"),
                term=record.term,
            )
        await self._read_ledger(record.metalog_ledger, record.last_entry + 1, closed_at=record.closed_at)
        if self._next_pos not in (None, record.end_pos):
            raise LogStopped(
                f"term {record.term} ends at position {record.end_pos} by its record, at {self._next_pos} by its entries",
                term=record.term,
                expected=record.end_pos,
                found=self._next_pos,
            )
        self._ended_term = record.term
        self._go_on()  # what it stopped before may have been given up
        await self._listener.term_ended(record)

    async def _follow(self, feed: ViewFeed, view: View, term: int) -> None:
        """Follows the current term until the view moves on."""
        installed = view.installed(self._log)
        assert installed is not None and installed.term == term
        slots = view.slots_of(self._log)
        after = self._history.before(term, self._log, slots)
        await self._begin(TermInfo(term, self._log, slots, installed.metalog_ledger, after))
        backoff = self._settings.backoff()
        with LogPace(_log.info, "no sequencer") as away:
            while self._is_current(feed, term):
                session = None
                if self._stopped is not None:  # a copy on a bookie may be better than what was pushed
                    await self._read_ledger(installed.metalog_ledger, self._position.entry + 1)
                try:
                    session = await self._while_current(feed, term, self._connect(installed))
                    await self._live(feed, session, installed)
                    backoff.reset()
                    away.over()
                except AccessError as error:
                    # Who exchanges a token may be quicker here than there: it is asked again, as one that is away.
                    _log.warning(
                        "the sequencer does not let us in", term=term, incarnation=installed.sequencer, error=error
                    )
                except (NetworkError, TermOver, ProtocolError) as error:
                    away.say(term=term, incarnation=installed.sequencer, error=error)
                finally:
                    if session is not None:
                        session.close()
                if session is not None:
                    session.raise_fault()
                elif self._is_current(feed, term):
                    await self._read_closed(installed)
                self._wake.clear()
                if self._is_current(feed, term):
                    feed.hurry()
                    await event_or_timeout(self._wake, backoff.next())

    async def _live(self, feed: ViewFeed, session: FollowerSession, installed: Installed) -> None:
        """Takes pushes until the connection or the term ends. Raises NetworkError, TermOver when it cannot subscribe."""
        up = False
        try:
            while self._is_current(feed, installed.term) and session.usable:
                if not session.subscribed:
                    await self._while_current(feed, installed.term, self._subscribe(session, installed))
                    continue
                if not up:
                    up = True
                    link = SequencerLink(session.peer, installed.term, self._shards, carries=session.carries)
                    link.repeat_reports()
                    self._listener.sequencer_up(link)
                await event_or_timeout(self._wake, None)
        finally:
            if up:
                self._listener.sequencer_down()

    async def _while_current(self, feed: ViewFeed, term: int, call: Coroutine[Any, Any, T]) -> T:
        """Awaits a call to the term's sequencer, which may be dead without saying so. Raises TermOver when the view moves."""
        task = asyncio.ensure_future(call)
        self._reaching = term, task
        try:
            return await task
        except asyncio.CancelledError:
            myself = asyncio.current_task()
            if self._is_current(feed, term) or (myself is not None and myself.cancelling()):
                raise
            raise TermOver(f"the view went on from term {term}", term=term) from None
        finally:
            self._reaching = None

    async def _connect(self, installed: Installed) -> FollowerSession:
        """A session with the sequencer that the view names. Raises NetworkError, ProtocolError, TermOver, Unauthenticated."""
        address = await self._address_of(installed.sequencer)
        if address is None:
            raise Unreachable(f"sequencer {installed.sequencer} of term {installed.term} is not listed")
        session = FollowerSession(installed.term, self._deliver, self._wake.set, self._token)
        welcome = await session.connect(address, list(self._shards.incarnations))
        if (welcome.incarnation, welcome.term, welcome.serving) != (installed.sequencer, installed.term, True):
            session.close()
            raise TermOver(
                f"expected sequencer {installed.sequencer} of term {installed.term} at {address}, found {welcome}",
                term=installed.term,
            )
        return session

    async def _address_of(self, incarnation: str) -> Address | None:
        try:
            address = await address_of(self._metadata, incarnation)
        except MetadataError as error:
            if not error.retryable:
                raise
            address = None  # the store is away: the sequencer is probably where it was
        if address is not None:
            self._addresses = {incarnation: address}
        return self._addresses.get(incarnation)

    async def _subscribe(self, session: FollowerSession, installed: Installed) -> None:
        """Subscribes, or reads from the ledger what the sequencer has no more in memory; then to be called again."""
        asked = self._position.entry
        answer = await session.subscribe(asked)
        if answer.first > asked:
            await self._read_ledger(installed.metalog_ledger, answer.first)

    async def _read_closed(self, installed: Installed) -> None:
        """Delivers what is left of a term whose sequencer is gone, if somebody closed its metalog: the next one may be long in
        coming, where no bookies take writes."""
        if self._complete_term == installed.term:
            return
        try:
            reader = await self._ledgers.open(installed.metalog_ledger, recover=False)
        except BokiError as error:
            _log.debug("the metalog is not looked at", term=installed.term, error=error)
            return
        closed, end = reader.closed, reader.last_entry + 1
        await reader.close()
        if closed:
            await self._read_ledger(installed.metalog_ledger, end, closed_at=end - 1)
            self._complete_term = installed.term
            self._listener.complete()

    # -- entries

    def _deliver(self, first: int, payloads: Sequence[memoryview]) -> bool:
        """Hands on what is new of `payloads`. False, and nothing is done, when entries before `first` are missing. Raises
        LogStopped: one cannot be right; those before it were handed on."""
        term, expected = self._position
        if first > expected:
            return False
        entries, fault = self._decoded(payloads[expected - first :])
        if entries:
            pos = self._next_pos
            self._position, self._next_pos = make_position((term, expected + len(entries))), entries[-1].end_pos
            try:
                self._listener.entries_ordered(term, expected, entries)
            except EntryRefused as refused:
                fault, taken = refused, refused.entry - expected
                self._position = make_position((term, refused.entry))
                self._next_pos, entries = (entries[taken - 1].end_pos if taken else pos), entries[:taken]
            for entry in entries:
                for command in entry.commands:
                    if isinstance(command, Close):
                        self._shards.closed(command.shard)
            if entries:
                self._go_on()
        if fault is not None:
            raise LogStopped(f"metalog entry {self._position.entry} of term {term}: {fault}", term=term) from fault
        return True

    def _decoded(self, payloads: Sequence[memoryview]) -> tuple[list[MetalogEntry], BokiError | None]:
        """The entries up to the first that cannot be right, and why not."""
        entries: list[MetalogEntry] = []
        pos = self._next_pos
        for payload in payloads:
            try:
                entry = decode(payload)
            except ProtocolError as error:
                return entries, error
            if entry.start_pos != pos and pos is not None:
                return entries, CorruptData(
                    f"expected it from position {pos} on, found {entry.start_pos}", expected=pos, found=entry.start_pos
                )
            entries.append(entry)
            pos = entry.end_pos
        return entries, None

    async def _read_ledger(self, ledger_id: int, end: int, *, closed_at: int | None = None) -> None:
        """Delivers the entries up to `end`, which are acknowledged, from a ledger."""
        reader = MetalogReader(self._ledgers, ledger_id, end=end, closed_at=closed_at, settings=self._settings)
        try:
            while self._position.entry < end:
                first = self._position.entry
                try:
                    payloads = await self._retry(lambda: reader.read(self._position.entry))
                except (CorruptData, DigestMismatch) as error:
                    raise LogStopped(f"metalog entry {first} of term {self._position.term}: {error}") from error
                delivered = self._deliver(first, payloads)
                assert delivered, "a batch begins where the last one ended"
                await self._listener.caught_up()
        finally:
            await reader.close()

    # -- waiting

    def _is_current(self, feed: ViewFeed, term: int) -> bool:
        view = _view_of(feed)
        return view is not None and view.term_of(self._log) == term

    async def _retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeats while what fails is away. An acknowledged entry that is "not there" is only not found yet."""
        return await retry(
            attempt,
            self._settings.backoff(),
            retryable=lambda error: error.retryable or isinstance(error, NoSuchEntry),
            on_failure=lambda error, pause_s: _log.warning(
                "cannot follow, trying again", log=self._log, pause_s=pause_s, error=error
            ),
        )


def _view_of(feed: ViewFeed) -> View | None:
    if feed.error is not None:
        raise feed.error
    return feed.view
