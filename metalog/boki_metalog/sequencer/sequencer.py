"""The sequencer process: it stands by, becomes the primary of a log's next term, serves it, keeps a spare ledger ready.

    sequencer = await Sequencer(metadata=…, ledgers=…, clock=…, rng=…).start(address)
    await sequencer.serving()        # the term; returns when this process orders a log
    await sequencer.failed           # raises when something is wrong that waiting does not mend

Rules:
- It lists itself, with its address and a spare ledger, before any view can name it, and lists the next spare while it serves:
  so that anybody can give it a term. A ledger is written only by the incarnation that made it, and for one term only.
- One term at a time. Without one it stands by for any log of the view (or for the one it was given), see `standby`.
- A term that is full is replaced by this process itself, at once. One that it was asked to end, or that somebody else ended
  (its metalog is fenced, the view went on), leaves it standing by: whoever ended it is given the time to install the next.
- Whatever is merely away (metadata store, bookies) is tried again, for ever, with growing pauses.

Ordering itself is in `term_server`, the change of terms in `term_change`. Nothing here is on the path of an append.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Self, TypeVar

import msgspec

from boki_common.background_tasks import ended
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.errors import BokiError, InvalidArgument, NotEnoughBookies, ProtocolError, TermOver
from boki_common.log_pace import LogPace
from boki_common.logs import get_logger
from boki_common.metadata.store import MetadataStore
from boki_common.metrics import Metrics
from boki_common.net.connection import Address
from boki_common.net.messages import MessagePeer
from boki_common.retry import event_or_timeout, retry
from boki_common.runtime.ports import Clock, Random
from boki_ledger.ledgers import Ledgers
from boki_metalog.entries import permissions
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.errors import MetalogUnreadable, SpareTaken, TermFull
from boki_metalog.follow.sequencer_member import SequencerMember
from boki_metalog.listed_process import ListedProcess
from boki_metalog.metric_definitions import SequencerMetrics
from boki_metalog.sequencer.spare_offer import SpareOffer
from boki_metalog.sequencer.standby import Standby
from boki_metalog.sequencer.term_server import TermServer
from boki_metalog.settings import SequencerSettings
from boki_metalog.terms.metadata_tree import ensure_view
from boki_metalog.terms.term_change import change_term
from boki_metalog.terms.view import View

T = TypeVar("T")

ANY_LOG: Final = -1
"""The log in the WELCOME of a sequencer that stands by for any."""

_OF_SHARDS: Final = {
    protocol.OP_OPEN: "OPEN",
    protocol.OP_REPORT: "REPORT",
    protocol.OP_CARRY: "CARRY",
    protocol.OP_CLOSE: "CLOSE",
}
"""What only engines may send."""

_log = get_logger("sequencer")


class Sequencer:
    """See the module. Use `start`."""

    def __init__(
        self,
        *,
        metadata: MetadataStore,
        ledgers: Ledgers,
        clock: Clock,
        rng: Random,
        settings: SequencerSettings = SequencerSettings(),  # noqa: B008 - frozen
        metrics: Metrics | None = None,
        log: int | None = None,
        take_over: bool = False,
        token: ClusterToken = NO_TOKEN,
    ) -> None:
        """A sequencer that does nothing yet.

        Args:
            log: the only log to stand by for; None: any of the view.
            take_over: do not ask the serving sequencer, replace it.
            token: required of those who connect, and sent to other sequencers.
        """
        self._process = ListedProcess("sequencer", metadata=metadata, rng=rng, settings=settings, token=token)
        self.incarnation: Final = self._process.incarnation
        self.failed: Final = self._process.failed
        self.token: Final = token
        self.log = log
        """The log that this process serves; while it stands by the only one it would, None: any."""
        self.term_server: TermServer | None = None
        """The newest term of this incarnation, perhaps over."""
        self._metadata = metadata
        self._ledgers = ledgers
        self._clock = clock
        self._rng = rng
        self._settings = settings
        self._metrics = Metrics() if metrics is None else metrics
        self._metrics_of_logs: dict[int, SequencerMetrics] = {}
        self._take_over = take_over
        self._retries = LogPace(_log.warning, "not yet a term, trying again")
        self._spare = SpareOffer(ledgers, self.incarnation, settings, self._member)
        self._standby = Standby(
            metadata,
            self.incarnation,
            only=log,
            settings=settings,
            rng=rng,
            on_change=self._process.wake.set,
            token=token,
        )
        self._began = asyncio.Event()

    async def start(self, address: Address) -> Self:
        """Listens and lists itself; a term is sought in the background, see `serving`. Raises SettingsError: cannot listen;
        MetadataUnavailable: the store is away."""
        join = partial(self._spare.join, self._metadata)
        await self._process.start(address, lambda: _Participant(self), join, self._work)
        return self

    async def close(self) -> None:
        """Stops. The term stays in the view until the next sequencer replaces it. Idempotent."""
        await self._process.close(self._stop)
        self._retries.flush()

    @property
    def address(self) -> Address:
        return self._process.address

    @property
    def advertised(self) -> Address:
        """Where others reach it, as it lists itself."""
        return self._process.advertised

    @property
    def usable(self) -> bool:
        """Whether it orders a log, or stands by with a spare ledger to order one on."""
        return self.term != 0 or self._spare.ledger_id is not None

    @property
    def term(self) -> int:
        """The term ordered by this process; 0 while it stands by."""
        return 0 if self.term_server is None or self.term_server.over is not None else self.term_server.term

    async def serving(self) -> int:
        """Waits until this process orders a log; returns the term. Raises what ends this incarnation before."""
        began = asyncio.ensure_future(self._began.wait())
        either: list[asyncio.Future[Any]] = [began, self.failed]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            began.cancel()
        if self.failed.done():
            self.failed.result()
        return self.term

    def status(self) -> dict[str, Any]:
        """For people."""
        return self._process.status() | {
            "log": self.log,
            "serving": self.term != 0,
            "spare_ledger": self._spare.ledger_id,
            "term": None if self.term_server is None else self.term_server.status(),
            "replicas": self._settings.replicas,
            "acks": self._settings.acks,
        }

    async def _stop(self) -> None:
        await self._standby.close()
        if self.term_server is not None:
            self.term_server.end(TermOver(f"sequencer {self.incarnation} stops", term=self.term_server.term))
        self._spare.drop()

    def welcome(self) -> protocol.Welcome:
        """The first message to a participant."""
        term = 0 if self.term_server is None else self.term_server.term
        log = ANY_LOG if self.log is None else self.log
        return protocol.Welcome(protocol.VERSION, self.incarnation, log, term, self.term != 0, carries=True)

    # -- the life of an incarnation

    async def _work(self) -> None:
        while True:
            log, view = await self._retry(self._seek_term)
            server = self._begin(log, view)
            await self._serve(server)
            if server.orderly:
                await self._close_metalog(server)
            self.log = self._standby.only
            if isinstance(server.over, TermFull):
                self._standby.replace_at_once(log, server.term)

    async def _seek_term(self) -> tuple[int, View]:
        """Stands by until a view gives the term of a log to this process; takes over a log itself when that is due."""
        try:
            candidate = await self._spare.offer()
        except NotEnoughBookies:
            await self._close_lost()
            raise
        while True:
            view, version = await ensure_view(self._metadata)
            self._process.feed.offer(view, version)
            log = candidate.installed_log(view)
            if log is not None:
                return log, view
            if self._process.feed.error is not None:
                raise self._process.feed.error
            log = await self._due(view)
            if log is None:
                continue
            try:
                view, version = await change_term(
                    metadata=self._metadata,
                    ledgers=self._ledgers,
                    rng=self._rng,
                    log=log,
                    suspect=view.term_of(log),
                    candidate=candidate,
                )
            except SpareTaken as error:
                _log.info("the spare is of no use any more", log=log, error=error)
                self._spare.drop()
                candidate = await self._spare.offer()
                continue
            except MetalogUnreadable as error:
                # Other logs may need this process: it tries this one again later.
                _log.error("a log can have no next term", log=log, error=error)
                self._take_over = False
                self._standby.stuck(log)
                continue
            self._process.feed.offer(view, version)
            if candidate.is_installed(view, log):
                self._standby.changed(log)

    async def _close_lost(self) -> None:
        """Closes the metalog of a lost sequencer though there is none to follow it, where no bookies take writes: reads go on
        with what it ordered. It is what a change of the term begins with, and one that stopped there is left as any other."""
        view, _ = await ensure_view(self._metadata)
        log, _ = await self._standby.look(view)
        installed = None if log is None else view.installed(log)
        if installed is None:
            return
        reader = await self._ledgers.open(installed.metalog_ledger, recover=False)
        if not reader.closed:
            await reader.close()
            reader = await self._ledgers.open(installed.metalog_ledger, recover=True)
            _log.info("closed a metalog without a next one: too few bookies take writes", log=log, term=installed.term)
        await reader.close()

    async def _due(self, view: View) -> int | None:
        """The log to take over now; None after something may have changed."""
        if self._take_over:
            return min(view.logs) if self.log is None else self.log
        log, pause_s = await self._standby.look(view)
        if log is None:
            pause_s = self._settings.standby_check_s if pause_s is None else pause_s
            await event_or_timeout(self._process.wake, min(pause_s, self._settings.standby_check_s))
        return log

    def _begin(self, log: int, view: View) -> TermServer:
        writer = self._spare.take()
        installed = view.logs[log]
        assert installed is not None, "the view names this process"
        self._standby.rest()
        metrics = self._metrics_of(log)
        self.term_server = TermServer(
            installed,
            writer,
            slots=view.slots_of(log),
            clock=self._clock,
            settings=self._settings,
            metrics=metrics,
            ended=lambda _: self._process.wake.set(),
            may_roll=lambda: self._spare.writer is not None,
        )
        self.log = log
        self._take_over = False
        metrics.term.set(installed.term)
        self._began.set()
        _log.info("term begins", log=log, term=installed.term, metalog_ledger=installed.metalog_ledger)
        return self.term_server

    async def _serve(self, server: TermServer) -> None:
        """Returns when the term is over. Meanwhile lists the next spare, and looks at the view."""
        assert self.log is not None
        spare = asyncio.get_running_loop().create_task(self._retry(self._spare.offer))
        spare.add_done_callback(lambda _: self._process.wake.set())
        try:
            while server.over is None:
                if self._process.feed.error is not None:
                    raise self._process.feed.error
                if spare.done():
                    spare.result()
                if self._process.feed.view is not None and self._process.feed.view.term_of(self.log) != server.term:
                    server.end(TermOver(f"term {server.term} was replaced in the view", term=server.term))
                    return
                await event_or_timeout(self._process.wake, None)
        finally:
            self._metrics_of(self.log).term.set(0)
            self._began.clear()
            self._process.feed.hurry()
            await ended(spare)

    async def _close_metalog(self, server: TermServer) -> None:
        """If it fails, the next term change fences and recovers the ledger."""
        try:
            async with asyncio.timeout(self._settings.confirm_timeout_s):
                await server.close_metalog()
        except (BokiError, TimeoutError) as error:
            _log.info("the metalog is left to recovery", term=server.term, error=error)

    def _metrics_of(self, log: int) -> SequencerMetrics:
        if log not in self._metrics_of_logs:
            self._metrics_of_logs[log] = SequencerMetrics(self._metrics, log)
        return self._metrics_of_logs[log]

    async def _retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat an attempt while its error is retryable."""
        found = await retry(
            attempt,
            self._settings.backoff(),
            on_failure=lambda error, pause_s: self._retries.say(incarnation=self.incarnation, error=error),
        )
        self._retries.over()
        return found

    def _member(self, spares: tuple[int, ...]) -> bytes:
        return msgspec.json.encode(SequencerMember(str(self.advertised), spares, self._standby.only))


class _Participant:
    """One connection to a sequencer. The first message is HELLO."""

    def __init__(self, sequencer: Sequencer) -> None:
        self._sequencer = sequencer
        self._greeted = False
        self._rights = permissions.NO_RIGHTS

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        server = self._sequencer.term_server
        if opcode == protocol.OP_REPORT and self._rights.shards and server is not None:
            server.report(peer, *protocol.decode_report(body))
        elif opcode == protocol.OP_CARRY and self._rights.shards and server is not None:
            server.carry(peer, protocol.decode_carry(body))
        elif opcode == protocol.OP_HELLO:
            hello = protocol.decode_hello(body)
            token = self._sequencer.token
            token.admit(hello.auth, "this sequencer")
            self._rights = permissions.Rights(hello.role, token_asked=token.asks)
            self._greeted = True
            peer.introduced()
            if server is not None:
                server.hello(peer, hello.incarnations if self._rights.shards else ())
            peer.respond(request_id, opcode, protocol.encode_welcome(self._sequencer.welcome()))
        elif not self._greeted:
            raise ProtocolError(f"expected HELLO first, found opcode {opcode}", found=opcode)
        elif opcode in _OF_SHARDS and not self._rights.shards:
            self._rights.check_shards(_OF_SHARDS[opcode])
        elif opcode == protocol.OP_STATUS:
            peer.respond(request_id, opcode, msgspec.json.encode(self._sequencer.status()))
        elif server is None:
            raise TermOver(
                f"sequencer {self._sequencer.incarnation} stands by; read /boki/view for the one that serves"
            )
        elif opcode == protocol.OP_OPEN:
            server.open(peer, request_id, protocol.decode_open(body))
        elif opcode == protocol.OP_CLOSE:
            server.close_shard(peer, request_id, *protocol.decode_close(body))
        elif opcode == protocol.OP_ORDER:
            term, command = protocol.decode_order(body)
            self._rights.check_order(command)
            server.order(peer, request_id, term, command)
        elif opcode == protocol.OP_BARRIER:
            server.barrier(peer, request_id, protocol.decode_term(body))
        elif opcode == protocol.OP_YIELD:
            self._rights.check_yield()
            server.yield_term(peer, request_id, protocol.decode_term(body))
        elif opcode == protocol.OP_SUBSCRIBE:
            server.subscribe(peer, request_id, protocol.decode_subscribe(body))
        else:
            raise InvalidArgument(f"a sequencer knows no opcode {opcode}", found=opcode)

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None:
        server = self._sequencer.term_server
        if server is not None:
            server.peer_lost(peer)
