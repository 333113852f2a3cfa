"""The cluster as the data pipeline uses it: plans, ledgers and the metadata store. Runs in an event loop.

    cluster = await Cluster.open(options)
    plan = await cluster.plan(ScanRange(start, end), LIVE)
    await cluster.close()

Plans come from an engine or from the index snapshot. Every client can load the snapshot, at the cost of the memory of an engine's state;
its plans end where the newest snapshot ends.
"""

from __future__ import annotations

from typing import Final

from boki_common.engine.engine_url import split_options
from boki_common.errors import InvalidArgument, MetadataError, NetworkError, NoNode
from boki_common.metadata.open import open_store
from boki_common.metadata.store import MetadataStore
from boki_common.net.connection import Address
from boki_common.runtime.process import SystemClock, SystemRandom
from boki_common.runtime.token_file import token_of
from boki_ledger.client import LedgerClient
from boki_logbook.scan.client import PlanningEngines
from boki_logbook.scan.facts import COMMITTED, Committed, ScanRange, first_missing
from boki_logbook.scan.pages import capture, pages_of
from boki_logbook.scan.plan import Plan, PlanBuilder
from boki_logbook.state.snapshot_rules import SnapshotNode
from boki_logbook.state.snapshots import UNUSABLE, SnapshotStore
from boki_logbook.state.state import DecisionState, checked_state
from boki_metalog.follow.term_history import TermHistory
from boki_metalog.terms.metadata_tree import read_view
from boki_spark.errors import Behind, ClusterAway, DataLoss
from boki_spark.plan.read_options import AUTO as AUTO
from boki_spark.plan.read_options import ENGINE
from boki_spark.plan.read_options import SNAPSHOT as SNAPSHOT
from boki_spark.plan.read_options import ClusterOptions as ClusterOptions

DEFAULT_PORT: Final = 7040


def engine_addresses(url: str) -> list[Address]:
    """Return the addresses of the engines that a URL names.

    Raises:
        InvalidArgument: the URL is malformed.
    """
    found = []
    for part in split_options(url).engines.split(","):
        text = part.strip().removeprefix("boki://").removesuffix("/")
        if not text or ("://" in text and not text.startswith("unix://")):
            raise InvalidArgument(f"expected boki://host:port or unix:///path, found {part!r} in {url!r}", found=url)
        host_only = not text.startswith("unix://") and ":" not in text.rpartition("]")[2]
        found.append(Address.parse(f"{text}:{DEFAULT_PORT}" if host_only else text))
    return found


class Cluster:
    """A connected cluster, made by `open`.

    Attributes:
        store: the metadata store.
        ledgers: the ledger client.
        engines: the engines that plan, or None if the options name none.
    """

    def __init__(self, store: MetadataStore, ledgers: LedgerClient, engines: PlanningEngines | None, plan: str) -> None:
        self.store: Final = store
        self.ledgers: Final = ledgers
        self.engines: Final = engines
        self._plan = plan
        self._loaded: tuple[SnapshotNode, DecisionState, dict[int, tuple[int, int]]] | None = None

    @classmethod
    async def open(cls, options: ClusterOptions) -> Cluster:
        """Connect to a cluster.

        Raises:
            ClusterAway: engines or the metadata store do not answer.
            SettingsError, InvalidArgument: an option is wrong.
            Unauthenticated: the token is missing or wrong.
        """
        if options.plan not in (AUTO, ENGINE, SNAPSHOT):
            raise InvalidArgument(f"expected plan to be {AUTO}, {ENGINE} or {SNAPSHOT}, found {options.plan!r}")
        if not options.url and not options.metadata:
            raise InvalidArgument("expected the URL of engines, or of the metadata store, found neither")
        token = await token_of(options.token_file or split_options(options.url).token_file)
        engines = None
        if options.url:
            engines = PlanningEngines(engine_addresses(options.url), token=token, timeout_s=options.timeout_s)
        store = None
        try:
            uri = options.metadata or await _named(engines)
            store = open_store(uri, zookeeper=options.zookeeper, create=False)
            await store.start()
            ledgers = LedgerClient(metadata=store, rng=SystemRandom(), clock=SystemClock(), token=token)
            await ledgers.start()
            await ledgers.check_admitted()
        except BaseException as error:
            if store is not None:
                await store.close()
            if engines is not None:
                await engines.close()
            if isinstance(error, (NetworkError, MetadataError)):
                raise ClusterAway(f"the cluster cannot be reached: {error}") from error
            raise
        return cls(store, ledgers, engines, options.plan)

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        if self.engines is not None:
            await self.engines.close()
        await self.ledgers.close()
        await self.store.close()

    # -- plans

    async def committed(self) -> Committed:
        """Return what is committed, as far as the planning state has come. Raises as `plan`."""
        return (await self._planned(ScanRange({}, {}), COMMITTED)).committed

    async def plan(self, asked: ScanRange, mode: str) -> Plan:
        """Return the plan of a range.

        Raises:
            Behind: the range ends after the planning state.
            ClusterAway: no engine answers, and the snapshot cannot be read.
            DataLoss: the snapshot is damaged.
            InvalidArgument: the range is malformed.
        """
        fault = asked.fault()
        if fault is not None:
            raise InvalidArgument(fault)
        plan = await self._planned(asked, mode)
        for offset in (asked.end, asked.start):
            missing = first_missing(plan.committed, offset)
            if missing is not None:
                log, found, expected = missing
                raise Behind(
                    f"expected a state at or after term {expected[0]}, position {expected[1]} of log {log}, found one at term "
                    f"{found[0]}, position {found[1]}: retry, or ask another engine"
                )
        return plan

    async def seek(self, time_ms: int) -> dict[int, tuple[int, int]]:
        """Return the first position of each log that was ordered at or after a time, or the end of the log."""
        committed = await self.committed()
        found = dict(committed.end)
        start: dict[int, tuple[int, int]] = {}
        end: dict[int, tuple[int, int]] = {}
        for one in reversed(committed.terms):
            if one.last_time_ms >= time_ms and one.end_pos:
                start[one.log], end[one.log] = (one.term, 0), (one.term, one.end_pos)
        plan = await self.plan(ScanRange(start, end), COMMITTED)
        found.update(start)
        for term in plan.terms:
            entries = term.entries
            later = entries.first_positions[entries.times >= time_ms]
            if len(later):
                found[term.facts.log] = term.facts.term, int(later[0])
        return found

    async def _planned(self, asked: ScanRange, mode: str) -> Plan:
        if self.engines is not None and self._plan != SNAPSHOT:
            try:
                return await self.engines.plan(asked, mode)
            except NetworkError as error:
                if self._plan == ENGINE:
                    raise ClusterAway(str(error)) from error
        try:
            _, state, metalogs = await self.snapshot_state()
        except (NetworkError, MetadataError) as error:
            raise ClusterAway(f"no engine plans, and the index snapshot cannot be read now: {error}") from error
        builder = PlanBuilder(asked, mode)
        for page in pages_of(capture(state, None, asked, mode, metalogs.get)):
            builder.take(page)
        return builder.finish()

    async def snapshot_state(self) -> tuple[SnapshotNode, DecisionState, dict[int, tuple[int, int]]]:
        """Return the newest index snapshot: its node, the state and the metalog of each term. Raises Behind, DataLoss or BokiError."""
        snapshots = SnapshotStore(metadata=self.store, ledgers=self.ledgers, incarnation="")
        while True:
            node, _ = await snapshots.newest()
            if self._loaded is not None and self._loaded[0] == node:
                return self._loaded
            if not node.ledgers:
                raise Behind(
                    "there is no index snapshot yet: engines write one when a term ends (boki log roll ends it)"
                )
            try:
                loaded = await snapshots.load(node)
                state = checked_state(loaded.state)
            except UNUSABLE as error:
                if (await snapshots.newest())[0] != node:
                    continue  # a newer snapshot was named meanwhile, and this one deleted
                raise DataLoss(f"the index snapshot cannot be used: {error}") from error
            metalogs = await self._metalogs({point.term: point.entry for point in loaded.logs if not point.ended})
            self._loaded = node, state, metalogs
            return self._loaded

    async def _metalogs(self, running: dict[int, int]) -> dict[int, tuple[int, int]]:
        """Return the metalog ledger of each term and its number of acknowledged entries.

        Args:
            running: terms that the snapshot has not seen ended, with the number of entries it has seen.
        """
        found: dict[int, tuple[int, int]] = {}
        history = TermHistory(self.store)
        await history.refresh()
        for number in history.numbers:
            record = history.record(number)
            if record is not None:
                found[number] = record.metalog_ledger, record.last_entry + 1
        try:
            view = (await read_view(self.store)).view
        except NoNode:
            return found
        for installed in view.logs.values():
            if installed is not None and installed.term in running and installed.term not in found:
                found[installed.term] = installed.metalog_ledger, running[installed.term]
        return found


async def _named(engines: PlanningEngines | None) -> str:
    """Return the metadata store that an engine names. Raises NetworkError or InvalidArgument."""
    assert engines is not None
    named = (await engines.status()).get("metadata")
    if not isinstance(named, str) or not named:
        raise InvalidArgument("the engine names no metadata store: give the option metadata")
    return named
