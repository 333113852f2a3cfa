"""The ledger client: make, open, list and delete ledgers on bookies, with metadata in the metadata store.

    client = LedgerClient(metadata=store, rng=SystemRandom())
    await client.start()
    writer = await client.create(replicas=3, acks=2)
    reader = await client.open(writer.ledger_id, recover=True)      # fences the writer

One client serves a whole process; it holds one connection to each bookie it talks to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, overload

from boki_common.bookkeeper import layout, ledger_ids
from boki_common.bookkeeper.bookie_mark import SeenMark
from boki_common.bookkeeper.digests import digest_for
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.errors import ClosedError, InvalidArgument, NotEnoughBookies, Unauthorized
from boki_common.ids import BookieId
from boki_common.metadata.store import MetadataStore
from boki_common.metrics import Metrics
from boki_common.runtime.ports import Buffer, Clock, Random
from boki_ledger.bookies.bookie_client import BookieNetwork
from boki_ledger.bookies.bookie_directory import BookieDirectory
from boki_ledger.bookies.bookie_health import HealthyBookies
from boki_ledger.bookies.introduction import check_admitted
from boki_ledger.metadata.metadata_update import LedgerUpdates
from boki_ledger.metric_definitions import LedgerMetrics
from boki_ledger.ports import LedgerPorts
from boki_ledger.read.reader import LedgerReader
from boki_ledger.read.replica_copies import Pace, ReplicaCopies
from boki_ledger.read.replica_words import words_of_replicas
from boki_ledger.recover.end_search import check_floor
from boki_ledger.recover.recovery import LedgerRecovery
from boki_ledger.repair.auditor import Auditor
from boki_ledger.repair.drain import begin_drain, cancel_drain, check_drain
from boki_ledger.repair.drain_rules import Refused
from boki_ledger.repair.scrub import Scrubber
from boki_ledger.repair.settings import RepairLimits
from boki_ledger.repair.worker import RepairWorker
from boki_ledger.rules.acks import ENSEMBLE_SIZE_MAX
from boki_ledger.settings import LedgerSettings
from boki_ledger.transport import Bookies, BookieTransport
from boki_ledger.write.caller_writer import CallerIdWriter
from boki_ledger.write.writer import LedgerWriter


class LedgerClient:
    """See the module."""

    def __init__(
        self,
        *,
        metadata: MetadataStore,
        rng: Random,
        settings: LedgerSettings | None = None,
        metrics: Metrics | None = None,
        bookies: Bookies | None = None,
        clock: Clock | None = None,
        token: ClusterToken = NO_TOKEN,
    ) -> None:
        """`bookies` stands in for the network and the registrations; without it they are the real ones.

        With a clock new ledgers say in their metadata when they were made. `token`: shown to the bookies.
        """
        self.token: Final = token
        """Shown to the bookies, and to other servers by the owner of this client."""
        self._clock = clock
        self._store = metadata
        self._rng = rng
        self._settings = settings or LedgerSettings()
        self._metrics = LedgerMetrics(metrics or Metrics())
        self._updates = LedgerUpdates(metadata, rng, self._settings)
        self._directory = BookieDirectory(metadata, retry_s=self._settings.retry_most_s)
        self._network: BookieNetwork | None = None
        self._transport: BookieTransport | None = bookies
        self._chooser = HealthyBookies(bookies or self._directory, self._settings)
        self._writers: dict[LedgerWriter, None] = {}

    async def start(self) -> None:
        """Reads which bookies are up. Raises MetadataUnavailable."""
        if self._transport is None:
            await self._directory.start()
            self._transport = self._network = BookieNetwork(self._directory, self._settings, self.token)

    async def check_admitted(self) -> None:
        """Asks bookies whether they admit this client, so that a refusal is raised at once and not after all retries.

        Raises:
            Unauthenticated: none of those that answered does, or asks for the token as it should.
        """
        await check_admitted(self._directory.writable(), self._directory, self._settings, self.token)

    async def close(self) -> None:
        """Abandons open writers and ends all connections. Idempotent."""
        for writer in tuple(self._writers):
            writer.abandon()
        network, self._network, self._transport = self._network, None, None
        if network is not None:
            await network.close()
        self._chooser.close()
        await self._directory.close()

    @overload
    async def create(
        self,
        *,
        replicas: int = 3,
        acks: int = 2,
        password: bytes = b"",
        digest: str = "CRC32C",
        custom: Mapping[str, bytes] | None = None,
        ledger_id: int | None = None,
        deferred_sync: bool = False,
        control: bool = False,
        entry_ids: Literal["writer"] = "writer",
    ) -> LedgerWriter: ...

    @overload
    async def create(
        self,
        *,
        replicas: int = 3,
        acks: int = 2,
        password: bytes = b"",
        digest: str = "CRC32C",
        custom: Mapping[str, bytes] | None = None,
        ledger_id: int | None = None,
        deferred_sync: bool = False,
        entry_ids: Literal["caller"],
    ) -> CallerIdWriter: ...

    async def create(
        self,
        *,
        replicas: int = 3,
        acks: int = 2,
        password: bytes = b"",
        digest: str = "CRC32C",
        custom: Mapping[str, bytes] | None = None,
        ledger_id: int | None = None,
        deferred_sync: bool = False,
        control: bool = False,
        entry_ids: Literal["writer", "caller"] = "writer",
    ) -> LedgerWriter | CallerIdWriter:
        """Makes a ledger and its writer.

        Args:
            replicas: copies of each entry; fewer if fewer bookies are up, but never fewer than `acks`.
            acks: copies that must be durable before an entry is acknowledged (Qa).
            password: guards adds, recovery and opening; stored in the metadata in clear, as BookKeeper does.
            digest: CRC32C, CRC32, HMAC or DUMMY.
            custom: stored in the metadata.
            ledger_id: the id it gets, by default the next one. Never one that was used before: bookies may remember it.
            deferred_sync: bookies may acknowledge before an entry is durable; `writer.force` makes it so. See `writer`.
            control: the ledger has small entries that free space, such as commands: where too few bookies take writes, the
                reserves of those whose disks are full are used. Never for user data.
            entry_ids: "writer": entries are numbered as they are appended. "caller": `append_at` names their ids.

        Raises:
            NotEnoughBookies: fewer than `acks` bookies take writes, or are up, for a control ledger. InvalidArgument.
            NodeExists: there is a ledger `ledger_id`.
            MetadataUnavailable; MetadataUnknown: an unnamed ledger may exist.
        """
        if not 0 < acks <= replicas <= ENSEMBLE_SIZE_MAX:
            raise InvalidArgument(
                f"expected 0 < acks <= replicas <= {ENSEMBLE_SIZE_MAX}, found acks {acks} and replicas {replicas}"
            )
        if ledger_id is not None and not 0 <= ledger_id <= layout.LEDGER_ID_MAX:
            raise InvalidArgument(f"expected a ledger id from 0 to {layout.LEDGER_ID_MAX}, found {ledger_id}")
        ports = self._ports()
        digest_for(digest, password)
        ensemble = await self._new_ensemble(replicas, acks, control=control)
        metadata = LedgerMetadata(
            ensemble_size=len(ensemble),
            write_quorum=len(ensemble),
            ack_quorum=acks,
            state=LedgerState.OPEN,
            last_entry=-1,
            length=0,
            ensembles=((0, ensemble),),
            digest_type=digest,
            password=password,
            custom=tuple(sorted((custom or {}).items())),
            ctime=self._clock.now_ms() if self._clock is not None else None,
        )
        if ledger_id is None:
            ledger_id = await self._updates.retry(lambda: ledger_ids.next_ledger_id(self._store))
        seen = await self._updates.create(ledger_id, metadata)
        writer = LedgerWriter(
            ledger_id,
            seen,
            ports,
            on_end=lambda ended: self._writers.pop(ended, None),
            deferred_sync=deferred_sync,
            control=control,
        )
        self._writers[writer] = None
        return writer if entry_ids == "writer" else CallerIdWriter(writer, self._settings)

    async def _new_ensemble(self, replicas: int, acks: int, *, control: bool) -> tuple[BookieId, ...]:
        """As many bookies as replicas are wanted, or as are up. Raises NotEnoughBookies, MetadataUnavailable."""
        candidates = self._candidates(replicas)
        if control and len(candidates) < acks:
            full = await self._updates.retry(lambda: layout.available_bookies(self._store, read_only=True))
            candidates += tuple(self._rng.shuffled([bookie for bookie in full if bookie not in candidates]))
        if len(candidates) < acks:
            raise NotEnoughBookies(
                f"expected at least {acks} bookies that take writes, found {len(candidates)}; start more, or ask for fewer "
                "acks",
                expected=acks,
                found=len(candidates),
            )
        return candidates[:replicas]

    async def open(
        self,
        ledger_id: int,
        *,
        recover: bool,
        floor: int = 0,
        carried: Mapping[int, Buffer] | None = None,
        password: bytes = b"",
    ) -> LedgerReader:
        """Opens a ledger for reading.

        Args:
            ledger_id: the ledger.
            recover: close it first if it is not closed: fences its writer, for good. Without, nobody is disturbed.
            floor: number of entries known to have been acknowledged.
            carried: entry id → payload: acknowledged entries that are kept elsewhere and perhaps not here. Recovery adds
                them where they come next, and takes them as part of the floor.
            password: the ledger's.

        Raises:
            NoSuchLedger, MetadataUnavailable. Unauthorized: wrong password; nothing was fenced.
            RecoveryFailed, NotEnoughBookies: try again when bookies are back; the ledger stays in recovery.
            LedgerDataMissing: it ends, or would end, below `floor`; it was not closed there by this call.
        """
        ports = self._ports()
        if recover and carried:
            floor = max(floor, *(entry_id + 1 for entry_id in carried))
        seen = await self._updates.read(ledger_id)
        if seen.metadata.password != password:
            raise Unauthorized(
                f"the password is not that of ledger {ledger_id}; nothing was fenced", ledger_id=ledger_id
            )
        if recover and seen.metadata.state is not LedgerState.CLOSED:
            seen = await LedgerRecovery(ledger_id, ports, floor=floor, carried=carried or {}, known=seen).run()
        if seen.metadata.state is LedgerState.CLOSED:
            check_floor(ledger_id, seen.metadata.last_entry, floor)
        return LedgerReader(ledger_id, seen, ports, floor=floor)

    async def delete(self, ledger_id: int) -> None:
        """Deletes a ledger, whatever its state. Raises NoSuchLedger, MetadataUnavailable, MetadataUnknown (try again)."""
        await self._updates.delete(ledger_id)

    def copies(self, ledger_id: int, metadata: LedgerMetadata, bookie: BookieId) -> ReplicaCopies:
        """What gives a bookie those entries of a closed ledger that it lacks, see `replica_copies`."""
        return ReplicaCopies(ledger_id, metadata, bookie, self._ports())

    def repairer(self, *, pace: Pace | None = None) -> RepairWorker:
        """Makes copies of a ledger anew that were on lost bookies, see `repair.worker`."""
        return RepairWorker(self._ports(), pace=pace)

    def scrubber(self, *, pace: Pace | None = None, mend: bool = False) -> Scrubber:
        """Looks for each copy of a ledger, and compares them, see `repair.scrub`."""
        return Scrubber(self._ports(), pace=pace, mend=mend)

    def auditor(self, limits: RepairLimits) -> Auditor:
        """Finds ledgers that miss copies, and has these made anew, see `repair.auditor`."""
        return Auditor(self._ports(), self._store, limits)

    async def check_drain(self, bookie: BookieId) -> list[Refused]:
        """Why a bookie cannot be drained, see `repair.drain`; empty, if it can. Raises InvalidArgument: no such bookie. MetadataError."""
        return await check_drain(self._ports(), self._store, bookie)

    async def begin_drain(self, bookie: BookieId) -> SeenMark:
        """Marks a bookie: it refuses adds, is emptied, and retired by a controller. Raises InvalidArgument, MetadataError."""
        return await begin_drain(self._store, bookie, self._rng)

    async def cancel_drain(self, bookie: BookieId) -> SeenMark:
        """Marks a bookie as active again; what was copied stays copied. Raises InvalidArgument, MetadataError."""
        return await cancel_drain(self._store, bookie, self._rng)

    async def words_of_replicas(self, ledger_id: int, entry: int) -> dict[BookieId, str]:
        """What each bookie that may have an entry says of it, for people. Raises as `metadata_of`."""
        metadata = await self.metadata_of(ledger_id)
        return await words_of_replicas(ledger_id, metadata, entry, self._connected(), self._settings)

    async def metadata_of(self, ledger_id: int) -> LedgerMetadata:
        """Raises NoSuchLedger, CorruptData, MetadataUnavailable."""
        return (await self._updates.read(ledger_id)).metadata

    async def list(self) -> list[int]:
        """Ids of all ledgers, ascending. Raises MetadataUnavailable."""
        return sorted(await self._updates.retry(lambda: layout.list_ledgers(self._store)))

    def _candidates(self, replicas: int) -> tuple[BookieId, ...]:
        """Bookies for a new ledger, in random order; those in quarantine last, and only if there are too few others."""
        healthy = tuple(self._rng.shuffled(self._chooser.writable()))
        if len(healthy) >= replicas:
            return healthy
        return (*healthy, *self._rng.shuffled(self._chooser.quarantined()))

    def _ports(self) -> LedgerPorts:
        transport = self._connected()
        return LedgerPorts(transport, self._chooser, self._updates, self._rng, self._settings, self._metrics)

    def _connected(self) -> BookieTransport:
        if self._transport is None:
            raise ClosedError("the ledger client is not started, or closed")
        return self._transport
