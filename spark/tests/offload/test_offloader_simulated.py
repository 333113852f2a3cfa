"""Planning and offloading in simulated clusters under harsh seeds: offloaders are killed anywhere and run again, two at a time.

Clients append and trim, logs roll and move, and machines fail as in every simulated run. Meanwhile offloaders copy terms, are killed at
any step, or are overtaken by another offloader. Files are damaged and lost. Another cluster and programs of earlier versions have files of
terms with the same numbers in the folder. At the end a last offloader verifies and repairs the copied terms. Then
- no file of the other cluster or of earlier versions is missing;
- every manifest that a term record names is verified: files, hashes, rows, sums;
- every record of a copied term that the last client reads is in the files, with its data;
- an engine's plan of a sealed term is the index snapshot's plan without the records that died since.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)

from boki_common.errors import BokiError
from boki_common.ids import book_id, term_of
from boki_ledger.client import LedgerClient
from boki_logbook.scan.client import PlanningEngines
from boki_logbook.scan.facts import COMMITTED, LIVE, ScanRange
from boki_logbook.testing.plans import seqnums_of
from boki_metalog.terms.metadata_tree import read_record
from boki_metalog.terms.term_record import COPIED, IN_LEDGERS, TERMS_PATH
from boki_sim.clusters.cluster_tokens import NO_PLAN
from boki_sim.clusters.shape import draw_shape
from boki_sim.faults.faults import draw
from boki_sim.outcome import Outcome
from boki_sim.run import _Run
from boki_sim.verdicts.verdict_on_history import Entry
from boki_sim.work.operations import payload_of
from boki_sim.world.ending import uncollected
from boki_sim.world.metadata import SimStore
from boki_sim.world.process import SimProcess
from boki_sim.world.randomness import SimRandom, stream
from boki_spark.cold_terms.files import MemoryFiles
from boki_spark.cold_terms.manifest import decode_manifest
from boki_spark.cold_terms.slices import table_of
from boki_spark.errors import ClusterAway, DataLoss, OffloadRefused, PlanStale
from boki_spark.offload.offloader import Offloader
from boki_spark.offload.prove import prove
from boki_spark.plan.cluster import SNAPSHOT, Cluster, engine_addresses

FOLDER = "memory://cold"
WORK_S = 8.0
MACHINES = 8
"""The number of machines that run offloaders."""
LIFE_S = 3.0
"""Virtual seconds after which an offloader ends by itself."""
OTHERS = {
    f"{FOLDER}/{above}term-{term}/v0-{'ff' * 8}/slice-000000.parquet": b"another cluster's"
    for above in ("", "cluster-another/")
    for term in range(1, 20)
}


class OffloadRun(_Run):
    """A simulated run with offloaders."""

    def __init__(self, seed: int) -> None:
        shape = draw_shape(stream(seed, "shape"))
        targets = shape.targets(stream(seed, "targets"))
        numbers = stream(seed, "faults", "harsh")
        faults = draw(numbers, "harsh", targets, seconds=WORK_S, turn=seed, carrying=shape.carrying)
        super().__init__(seed, shape, NO_PLAN, sorted(faults, key=lambda fault: fault.at), WORK_S, False)
        self.files = MemoryFiles()
        self.files.files.update(OTHERS)
        self.repaired = self.beyond_repair = 0
        self.numbers = stream(seed, "offloaders")
        self.machines: list[str] = []
        self.started = self.offloaded = self.planned = 0
        self.working_offloaders: list[asyncio.Task[None]] = []

    async def _scenario(self) -> None:
        offloading = asyncio.ensure_future(self._offloaders())
        try:
            await super()._scenario()
        finally:
            offloading.cancel()

    async def _offloaders(self) -> None:
        while True:
            await self.loop.settled_after(self.loop.outside, self.numbers.choice((0.3, 0.7, 1.5)))
            self._harm_a_file()
            process = self.loop.process(f"offloader-{self.started}", self.machine())
            self.started += 1
            self.working_offloaders.append(process.start(self._offload(process)))
            if self.numbers.random() < 0.6:
                process.kill_after(self.numbers.choice((50, 300, 1_000, 3_000)))

    def _harm_a_file(self) -> None:
        """Now and then damage or delete a file of this cluster."""
        own = sorted(path for path in self.files.files if path not in OTHERS)
        if own and self.numbers.random() < 0.25:
            path = self.numbers.choice(own)
            data = self.files.files.pop(path)
            if self.numbers.random() < 0.5:
                at = self.numbers.randrange(len(data))
                self.files.files[path] = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    def machine(self) -> str:
        """Return one of a few machines, in turn: a run may have hundreds of offloaders, but a cluster has few addresses."""
        if len(self.machines) < MACHINES:
            self.machines.append(self.cluster.machine())
        return self.machines[self.started % len(self.machines)]

    def _store(self, process: SimProcess) -> SimStore:
        cluster = self.cluster
        return SimStore(
            self.loop, cluster.tree, process, stream(self.seed, "metadata", process.name), self.trace,
            cluster.shape.metadata_s, cluster.steps,
        )  # fmt: skip

    async def _offload(self, process: SimProcess) -> None:
        """Offload all terms that are due, and sweep, as one process does."""
        numbers = SimRandom(stream(self.seed, "offloader", process.name))
        store = self._store(process)
        try:
            await store.start()
            ledgers = LedgerClient(metadata=store, rng=numbers, settings=self.cluster.shape.ledger)
            await ledgers.start()
            engines = PlanningEngines(engine_addresses(self.cluster.url), timeout_s=1.0)
            cluster = Cluster(store, ledgers, engines, SNAPSHOT)
            work = Offloader(cluster, self.files, FOLDER, rng=numbers, slice_bytes=200, retry_for_s=1.0)
            async with asyncio.timeout(LIFE_S):
                for term in (await work.survey()).due:
                    if (await read_record(store, term)).location.kind == IN_LEDGERS:
                        await self._compare(cluster, term)
                    self.offloaded += bool((await work.offload(term)).manifest)
                await work.sweep()
            await cluster.close()
        except (BokiError, TimeoutError) as error:
            self.trace.add(process.name, "got", type(error).__name__)
        self.loop.call_soon(process.kill, context=self.loop.outside.context)

    async def _compare(self, cluster: Cluster, term: int) -> None:
        """Check that an engine plans a sealed term like the snapshot does, without the records that died since."""
        assert cluster.engines is not None
        _, state, _ = await cluster.snapshot_state()
        places = state.places.terms[term]
        asked = ScanRange({places.log: (term, 0)}, {places.log: (term, places.end_pos)})
        before = await cluster.plan(asked, LIVE)
        whole = await cluster.plan(asked, COMMITTED)
        after = await cluster.engines.plan(asked, LIVE)
        again = await cluster.engines.plan(asked, COMMITTED)
        facts = {one.term: one for one in again.committed.terms}.get(term)
        if facts is None or not facts.ended or facts.end_pos < places.end_pos or facts.digest != places.counts.digest:
            return  # the engine is behind, or something was given up
        self.planned += 1
        if not set(seqnums_of(after)) <= set(seqnums_of(before)):
            self.invariants.violated(
                "plan", f"an engine has live records of term {term} that the snapshot before had not"
            )
        if not again.gone and seqnums_of(again) != seqnums_of(whole):
            self.invariants.violated("plan", f"engine and snapshot have other committed records of term {term}")

    def _judge(self, books: dict[str, list[Entry]]) -> None:
        super()._judge(books)
        self.books = books

    async def _repair(self, store: SimStore) -> set[int]:
        """Offload damaged terms again, and return the terms for which this is impossible."""
        numbers = SimRandom(stream(self.seed, "offloader", "who repairs"))
        ledgers = LedgerClient(metadata=store, rng=numbers, settings=self.cluster.shape.ledger)
        await ledgers.start()
        cluster = Cluster(store, ledgers, None, SNAPSHOT)
        work = Offloader(cluster, self.files, FOLDER, rng=numbers, slice_bytes=200, retry_for_s=1.0)
        lost: set[int] = set()
        for name in await store.children(TERMS_PATH):
            while (await read_record(store, int(name))).location.kind == COPIED:
                try:
                    self.repaired += bool((await work.offload(int(name))).damage)
                except OffloadRefused:
                    continue  # it was reclaimed, or one that goes on was faster
                except (DataLoss, PlanStale, ClusterAway):
                    lost.add(int(name))
                break
        await work.sweep()
        await ledgers.close()
        if not OTHERS.items() <= self.files.files.items():
            self.invariants.violated("files", "files of another cluster were deleted")
        self.beyond_repair += len(lost)
        return lost

    async def compare_files(self, store: SimStore) -> int:
        """Compare the files of every copied term with what was read, and return the number of these terms."""
        await store.start()
        lost = await self._repair(store)
        copied = 0
        for name in await store.children(TERMS_PATH):
            record = await read_record(store, int(name))
            if record.location.kind != COPIED or record.term in lost:
                continue
            copied += 1
            path = record.location.path
            await prove(self.files, path)
            manifest = decode_manifest(self.files.files[path], path.rpartition("/")[2])
            rows: dict[int, tuple[int, bytes]] = {}
            columns = ["seqnum", "book", "data"]
            for one in manifest.slices:
                data = self.files.files[f"{path.rpartition('/')[0]}/{one.file}"]
                for row in table_of(data, one.file, columns=columns).to_pylist():
                    rows[row["seqnum"]] = row["book"] % 2**64, row["data"]
            for book, entries in self.books.items():
                for entry in entries:
                    if term_of(entry.seqnum) == record.term and rows.get(entry.seqnum) != (
                        book_id(book),
                        payload_of(entry.data),
                    ):
                        self.invariants.violated("files", f"record {entry.seqnum} is not in {path} as it was read")
        return copied


def run(seed: int) -> tuple[Outcome, OffloadRun, int]:
    outcome = Outcome(seed, "harsh", [], WORK_S)
    copied = 0
    with uncollected():
        made = OffloadRun(seed)
        end = made.loop.end

        def compare_and_end() -> None:
            nonlocal copied
            process = made.loop.process("who compares", made.machine())
            task = process.start(made.compare_files(made._store(process)))
            copied = made.loop.run_until_complete(task)
            made._report(outcome)
            end()

        made.loop.end = compare_and_end  # type: ignore[method-assign]  # what is compared, is before the world ends
        made.go(outcome)
    return outcome, made, copied


class Totals(NamedTuple):
    """The counts of several runs."""

    copied: int = 0
    planned: int = 0
    started: int = 0
    repaired: int = 0
    beyond_repair: int = 0


def check(seeds: range) -> Totals:
    totals = Totals()
    for seed in seeds:
        outcome, made, copied = run(seed)
        assert not outcome.violations, f"seed {seed}: {outcome.violations}"
        here = copied, made.planned, made.started, made.repaired, made.beyond_repair
        totals = Totals(*map(sum, zip(totals, here, strict=True)))
    return totals


def test_offloading_holds_under_some_harsh_seeds() -> None:
    found = check(range(4))
    assert found.copied > 0 and found.planned > 0 and found.started > 10 and found.repaired > 0, found


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
def test_offloading_holds_under_300_harsh_seeds() -> None:
    found = check(range(300))
    assert found.repaired > 20 and found.beyond_repair <= found.repaired, found
