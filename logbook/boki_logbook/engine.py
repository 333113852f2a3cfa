"""The engine process: serves LogBook calls to SDKs, next to the application.

    engine = await Engine.start(metadata=…, ledgers=…, addresses=[…], rng=…)
    await engine.ready()          # everything ordered before its start is indexed
    await engine.failed           # raises what ended it: start a new process

It rebuilds its index from the metalogs and entry headers of all logs through `LogFollowers`, lists itself under
`/boki/members/engine/<incarnation>`, and listens on TCP and Unix sockets. From the start it takes appends, and queues them
until a shard is open; reads of a session wait until the index has what was ordered before the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from boki_common.advertised import all_advertised
from boki_common.background_tasks import ends_only_with_its_owner
from boki_common.bookkeeper.layout import instance_id
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.engine.admission import Admission
from boki_common.engine.engine_protocol import Token
from boki_common.errors import BokiError, NoNode, NoSuchLedger
from boki_common.logs import get_logger
from boki_common.metadata.membership import Membership, member_path
from boki_common.metadata.store import MetadataStore
from boki_common.metrics import Counter, Metrics
from boki_common.net.connection import Address, FrameServer
from boki_common.net.messages import MessagePeer, serve_messages
from boki_common.records.record_batch import RecordBatch
from boki_common.runtime.ports import MachineClock, Random
from boki_ledger.client import LedgerClient
from boki_logbook.append.admission_watch import AdmissionWatch
from boki_logbook.apply.engine_parts import KnownTerms
from boki_logbook.apply.lost_entries import LostEntries
from boki_logbook.core import EngineCore
from boki_logbook.engine_status import faults_of, status_of
from boki_logbook.housekeeping import EngineBehind, Housekeeping
from boki_logbook.outside_door import OutsideDoor
from boki_logbook.peers.engine_list import keep_engine_list, listed_addresses
from boki_logbook.peers.forwarding import Neighbours
from boki_logbook.peers.header_subscriptions import HeaderSubscriptions
from boki_logbook.scan.handles import ScanHandles
from boki_logbook.server import SdkConnection
from boki_logbook.settings import EngineSettings
from boki_logbook.state.state import StateDisagrees
from boki_logbook.upkeep.aux_backup import AuxBackup
from boki_logbook.writers.early_conflicts import EarlyConflicts
from boki_metalog.follow.log_followers import LogFollowers
from boki_metalog.terms.index_slots import ENGINE_ROLE, EngineMember, index_slots_text
from boki_metalog.terms.term_order import ALL_SLOTS

_log = get_logger("engine")


class Engine:
    """See the module. Use `start`."""

    def __init__(
        self,
        make_core: Callable[[], EngineCore],
        metadata: MetadataStore,
        ledgers: LedgerClient,
        settings: EngineSettings,
        metadata_uri: str = "",
        token: ClusterToken = NO_TOKEN,
    ) -> None:
        self.token = token
        self._make_core = make_core
        self.core = self._new_core()
        self._settings = settings
        self.metadata_uri = metadata_uri
        self._metadata = metadata
        self._outside = OutsideDoor(settings)
        self._ledgers = ledgers
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Gets the error that ended this engine; never a result."""
        self.known_engines: list[str] = []
        """Addresses of the engines of the cluster, as far as this one knows."""
        slots = self.core.slots
        self._neighbours = None if slots == ALL_SLOTS else Neighbours(slots, lambda: self.incarnation, token)
        self._subscriptions = HeaderSubscriptions(
            lambda: self.incarnation,
            lambda ledger_id, entry, header: self.core.parts.pushed.add(ledger_id, entry, header),
            token,
        )
        self.cluster = ""
        """INSTANCEID of the cluster, for session tokens: those of another one mean nothing here."""
        self._servers: list[FrameServer] = []
        self._connections: dict[SdkConnection, None] = {}
        self._membership: Membership | None = None
        self._works: list[asyncio.Task[None]] = []
        self._scans = ScanHandles(lambda asked, mode: self.core.capture(asked, mode))
        self._admission = AdmissionWatch(
            metadata, needed=settings.acks, waiting_s=lambda: self.core.unordered_s, on_change=self._announce_admission
        )
        self._closing = False

    @classmethod
    async def start(
        cls,
        *,
        metadata: MetadataStore,
        ledgers: LedgerClient,
        addresses: Sequence[Address],
        rng: Random,
        settings: EngineSettings = EngineSettings(),  # noqa: B008 - frozen
        metrics: Metrics | None = None,
        metadata_uri: str = "",
        clock: MachineClock | None = None,
        token: ClusterToken = NO_TOKEN,
    ) -> Engine:
        """Listens, lists itself, and begins to follow the logs; `ready` returns when it has caught up.

        Args:
            metadata_uri: part of the status, so that people find the rest of the cluster.
            clock: compared with those of the sequencers, which people are warned of if they differ; sent to SDKs, whose writers
                are born by it; and ages are judged by how it goes on. Without one, by the event loop's.
            token: required of those who connect, and sent to sequencers and other engines.

        Raises:
            SettingsError: cannot listen on an address. MetadataUnavailable: the store is away.
        """
        known, given_up = Metrics() if metrics is None else metrics, LostEntries()

        def make_core() -> EngineCore:
            return EngineCore(
                ledgers=ledgers,
                incarnation=rng.token(16).hex(),
                settings=settings,
                metrics=known,
                given_up=given_up,
                clock=clock,
            )

        self = cls(make_core, metadata, ledgers, settings, metadata_uri, token)
        with suppress(NoNode):  # a cluster that nobody has given a name, as tests do
            self.cluster = await instance_id(metadata)
        try:
            for address in addresses:
                handler = partial(self._connected, lambda: self.known_engines)
                self._servers.append(await serve_messages(address, handler))
            await self._outside.open(partial(self._connected, lambda: self._outside.known))
            await self._join()
        except BaseException:
            await self.close()
            raise
        loop = asyncio.get_running_loop()
        self._works = [
            loop.create_task(self._follow(), name="engine follows its logs"),
            loop.create_task(self._list(), name="engine lists engines"),
            loop.create_task(self._admission.run(), name="engine looks for room"),
        ]
        for work in self._works:
            ends_only_with_its_owner(work, self._fail)
        return self

    def _new_core(self) -> EngineCore:
        core = self._make_core()
        core.appender.stopped = self._was_stopped
        return core

    def _was_stopped(self) -> None:
        """Nobody knows how old is what waits in connections; who sent it sends it again."""
        for connection in list(self._connections):
            connection.end()

    @property
    def addresses(self) -> list[Address]:
        """Where it listens."""
        return [server.address for server in self._servers]

    @property
    def advertised(self) -> list[Address]:
        """Where others reach it, as it lists itself."""
        return all_advertised(self.addresses, self._settings.advertise, key="engine.advertise")

    async def _join(self) -> None:
        outside = self._outside.advertised
        listed = {
            "addresses": [str(address) for address in self.advertised],
            "index_slots": index_slots_text(self.core.slots),
            **({"outside": [str(address) for address in outside]} if outside else {}),
        }
        path = member_path(ENGINE_ROLE, self.core.incarnation)
        self._membership = await Membership.join(self._metadata, path, msgspec.json.encode(listed))

    @property
    def incarnation(self) -> str:
        return self.core.incarnation

    async def ready(self) -> None:
        """Waits until everything that was ordered before the start is indexed. Raises what ended the engine."""
        while not self.core.ready:
            core = self.core
            waiting = asyncio.ensure_future(core.reader.caught_up())
            try:
                await asyncio.wait([waiting, core.failed, self.failed], return_when=asyncio.FIRST_COMPLETED)
                if self.failed.done():
                    await self.failed
            finally:
                waiting.cancel()
            await asyncio.sleep(0)  # one that begins anew takes a turn

    def status(self) -> dict[str, Any]:
        """What `boki status` prints of this engine."""
        return {
            **status_of(self.core),
            "addresses": [str(address) for address in self.advertised],
            "connections": len(self._connections) - len(self.core.headers.subscribers),
            "metadata": self.metadata_uri,
            "replicas": self._settings.replicas,
            "acks": self._settings.acks,
            "asks_for_token": self.token.asks,
            "appends_refused": None if self.admission.taken else self.admission._asdict(),
        }

    def faults(self) -> list[str]:
        """What `/healthz` reports of this engine: what keeps something of the logs from being served."""
        refused = [] if self.admission.taken else [self.admission.sentence()]
        return refused + faults_of(self.core)

    @property
    def admission(self) -> Admission:
        """Whether new appends are taken."""
        return self._admission.now

    def _announce_admission(self, admission: Admission) -> None:
        for connection in list(self._connections):
            connection.announce_admission(admission)

    @property
    def reads(self) -> Counter:
        return self.core.reads

    def check_named(self, batch: RecordBatch) -> None:
        self.core.check_named(batch)

    def early_conflicts(self, token: Token, batch: RecordBatch) -> EarlyConflicts | None:
        return self.core.early_conflicts(token, batch)

    def scan(self, owner: object, body: memoryview) -> bytes:
        """The answer to a SCAN. Raises as `ScanHandles.answer`, and NotPermitted: this engine does not index all books."""
        return self._scans.answer(owner, body)

    def end_scan(self, owner: object) -> None:
        """End the scan of a connection that ended."""
        self._scans.left(owner)

    def now_ms(self) -> int:
        """Wall clock: writers that SDKs make are born then."""
        return self.core.now_ms()

    def _connected(self, engines: Callable[[], list[str]], peer: MessagePeer) -> SdkConnection:
        connection = SdkConnection(
            peer,
            engine=self,
            engines=engines,
            appender=self.core.appender,
            reader=self.core.reader,
            headers=self.core.headers,
            lost=lambda one: self._connections.pop(one, None),
            neighbours=self._neighbours,
            token=self.token,
        )
        self._connections[connection] = None
        return connection

    async def _follow(self) -> None:
        """Begins with the newest snapshot and follows the logs; anew, with another incarnation, when it cannot go on so."""
        while True:
            try:
                await self._follow_once(self.core)
            except (EngineBehind, StateDisagrees) as error:
                _log.warning("engine begins anew", incarnation=self.incarnation, error=error)
                await self._begin_anew()

    def _fail(self, error: BaseException) -> None:
        """End the engine: one of its own tasks ended."""
        if self._closing:
            return
        self.core.fail(error)
        if not self.failed.done():
            self.failed.set_exception(error)
            self.failed.exception()  # `failed` raises it where it is awaited

    async def _follow_once(self, core: EngineCore) -> None:
        keeping = Housekeeping(
            core=core, metadata=self._metadata, ledgers=self._ledgers, settings=self._settings, role=ENGINE_ROLE
        )
        await keeping.load()
        followers = LogFollowers(
            metadata=self._metadata,
            ledgers=self._ledgers,
            listener=core,
            starts=core.snapshots.starts(),
            slots=core.slots,
            token=self.token,
        )
        core.parts.terms = KnownTerms(followers.foreign, followers.record)
        works: list[Awaitable[None]] = [followers.run(), keeping.run(), asyncio.shield(core.failed)]
        if self._settings.aux_backup_s:
            works.append(self._aux_backup(core).run())
        tasks = [asyncio.ensure_future(work) for work in works]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except NoSuchLedger:
            await keeping.check_behind()
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _aux_backup(self, core: EngineCore) -> AuxBackup:
        return AuxBackup(
            cache=core.cache,
            incarnation=core.incarnation,
            metadata=self._metadata,
            ledgers=self._ledgers,
            settings=self._settings,
            role=ENGINE_ROLE,
        )

    async def _begin_anew(self) -> None:
        """As if the process had been started again: SDKs connect again, and send again what is undecided."""
        self._scans.close()
        before, self.core = self.core, self._new_core()
        for connection in list(self._connections):
            await connection.close()
        await before.close()
        before.failed.cancel()  # who waits until it is ready, waits for the new one
        await self._leave()
        await self._join()

    async def _list(self) -> None:
        def update(engines: list[EngineMember]) -> None:
            self.known_engines = listed_addresses(engines)
            self._outside.update(engines)
            self._subscriptions.update(engines)
            if self._neighbours is not None:
                self._neighbours.update(engines)

        await keep_engine_list(self._metadata, ENGINE_ROLE, update)

    async def _leave(self) -> None:
        if self._membership is not None:
            try:
                await self._membership.leave()
            except BokiError as error:
                _log.info("membership vanishes with the session", error=error)

    async def close(self) -> None:
        """Leaves: closes its shard, its connections and its sockets. Idempotent."""
        if self._closing:
            return
        self._closing = True
        await self._leave()
        connections = list(self._connections)
        for server in self._servers:
            await server.close()
        await self._outside.close()
        for connection in connections:
            await connection.close()
        core = self.core
        await core.close()
        self._scans.close()
        for task in self._works:
            task.cancel()
            await asyncio.wait([task])
        await self._subscriptions.close()
        if self.core is not core:  # it was about to begin anew
            await self.core.close()
