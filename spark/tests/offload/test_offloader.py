"""Offloading: the files hold the term, despite kills, trims, losses and other processes in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from fnmatch import fnmatch

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)

from boki_common.bookkeeper.layout import INSTANCE_ID
from boki_common.errors import BokiError
from boki_common.ids import book_id
from boki_common.testing.machine import CountingRandom
from boki_logbook.scan.facts import COMMITTED, LIVE, ScanRange
from boki_metalog.entries.metalog_entry import Lost
from boki_metalog.terms.term_record import COPIED, DELETED, IN_LEDGERS, decode_record, encode_record, term_path
from boki_spark.cold_terms.cold_reads import choose_cold, cold_files, read_cold
from boki_spark.cold_terms.files import MemoryFiles
from boki_spark.cold_terms.manifest import decode_manifest
from boki_spark.errors import ColdDamaged, ColdMissing, DataLoss, OffloadRefused, PlanStale
from boki_spark.offload.offloader import Offloader
from boki_spark.offload.prove import prove
from boki_spark.plan.cluster import SNAPSHOT, Cluster
from boki_spark.testing.small_cluster import ReadRow, SmallCluster, read_rows, whole_plan

ROWS = 60


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    async with SmallCluster() as made:
        yield made


async def sealed(cluster: SmallCluster, count: int = ROWS) -> list[ReadRow]:
    """Make term 1 with records of two books, sealed and in the snapshot, and a record after it."""
    records = [(f"book-{at % 2}", b"%d" % at, [f"tag/{at % 3}"]) for at in range(count)]
    seqnums = [seqnum for at in range(0, count, 4) for seqnum in await cluster.append(*records[at : at + 4])]
    await cluster.roll()
    await cluster.append(("book-0", b"behind", []))
    await cluster.snapshot_covers(1)
    return sorted((at, book_id(book), data) for at, (book, data, _) in zip(seqnums, records, strict=True))


def offloader(cluster: SmallCluster, files: MemoryFiles, *, slice_bytes: int = 10**6, seed: int = 1) -> Offloader:
    return Offloader(
        cluster.pipeline(SNAPSHOT),
        files,
        "memory://cold",
        rng=CountingRandom(seed),
        slice_bytes=slice_bytes,
        retry_for_s=0.05,
    )


def damaged(data: bytes) -> bytes:
    """Return a file with one byte changed."""
    return data[:50] + bytes([data[50] ^ 1]) + data[51:]


async def cold_rows(pipeline: Cluster, files: MemoryFiles, *, mode: str = LIVE, **asked: object) -> list[ReadRow]:
    """Return all rows of term 1 from its files only."""
    plan = await whole_plan(pipeline, mode, **asked)  # type: ignore[arg-type]
    choice = await choose_cold(pipeline, files, plan)
    found: list[ReadRow] = []
    for one in choice.partitions:
        table = await read_cold(files, one)
        rows = table.to_pylist()
        found += [(row["seqnum"], row["book"] % 2**64, row["data"]) for row in rows]
    return sorted(found)


@pytest.mark.parametrize("slice_bytes", [1, 300, 10**6])
async def test_files_have_the_rows_of_the_term_and_its_record_names_them(
    cluster: SmallCluster, slice_bytes: int
) -> None:
    rows = await sealed(cluster)
    files = MemoryFiles()
    done: list[tuple[int, int]] = []
    work = offloader(cluster, files, slice_bytes=slice_bytes)
    assert (await work.survey()).due == [1]
    made = await work.offload(1, lambda some, total: done.append((some, total)))
    record = await cluster.record(1)
    assert (record.location.kind, record.location.path, record.version) == (COPIED, made.manifest, 2)
    assert made.rows == ROWS and done[-1] == (2 * ROWS, 2 * ROWS) and (made.slices > 1) == (slice_bytes < 10**6)
    assert await cold_rows(cluster.pipeline(), files) == rows
    assert (await work.survey()).due == []
    assert (await work.offload(1)).why == "it is copied"
    manifest = await prove(files, made.manifest)
    assert manifest.committed == ROWS and manifest.rows == ROWS


async def test_ledgers_go_on_being_read_by_who_knows_no_files(cluster: SmallCluster) -> None:
    rows = await sealed(cluster)
    await offloader(cluster, MemoryFiles()).offload(1)
    pipeline = cluster.pipeline()
    found = await read_rows(pipeline, await whole_plan(pipeline))
    assert found[:ROWS] == rows
    second = await cluster.start_engine(cluster.engine._settings)
    assert second.core.state.places.terms[1].live == ROWS, "an engine begins beside a copied term"


async def test_what_was_trimmed_before_is_dead_in_the_manifest_later_it_is_left_out(
    cluster: SmallCluster,
) -> None:
    rows = await sealed(cluster)
    await cluster.trim("book-0", rows[20][0])
    files = MemoryFiles()
    pipeline = cluster.pipeline()
    await cluster.roll()
    await cluster.snapshot_covers(2)
    made = await offloader(cluster, files).offload(1)
    manifest = decode_manifest(files.files[made.manifest], made.manifest.rpartition("/")[2])
    live = [row for row in rows if row[0] >= rows[20][0] or row[1] != book_id("book-0")]
    assert manifest.rows == len(live) and await cold_rows(pipeline, files) == live
    await cluster.trim("book-1", rows[40][0])
    left = [row for row in live if row[0] >= rows[40][0] or row[1] != book_id("book-1")]
    assert await cold_rows(pipeline, files) == left
    (file,), rest = await cold_files(pipeline, files, await whole_plan(pipeline))
    assert file.rows == len(left) and int((file.left_out[:, 1] - file.left_out[:, 0]).sum()) == len(live) - len(left)
    assert [one.facts.term for one in rest.terms] == [2]


async def test_a_plan_from_before_the_trim_reads_ledgers_where_files_lack_its_rows(cluster: SmallCluster) -> None:
    rows = await sealed(cluster)
    pipeline = cluster.pipeline()
    before = await whole_plan(pipeline)
    await cluster.trim("book-0", rows[20][0])
    await cluster.roll()
    await cluster.snapshot_covers(2)
    files = MemoryFiles()
    await offloader(cluster, files).offload(1)
    choice = await choose_cold(pipeline, files, before)
    assert not choice.partitions and choice.rest == before
    assert (await read_rows(pipeline, choice.rest))[:ROWS] == rows


async def test_a_book_and_tags_are_read_from_files_too(cluster: SmallCluster) -> None:
    rows = await sealed(cluster)
    files = MemoryFiles()
    await offloader(cluster, files, slice_bytes=300).offload(1)
    found = await cold_rows(cluster.pipeline(), files, book="book-1", tags=["tag/0", "tag/2"])
    assert found == [row for row in rows if int(row[2]) % 2 == 1 and int(row[2]) % 3 in (0, 2)]


async def test_streams_are_not_read_from_files(cluster: SmallCluster) -> None:
    await sealed(cluster)
    files = MemoryFiles()
    await offloader(cluster, files).offload(1)
    assert await cold_rows(cluster.pipeline(), files, mode=COMMITTED) == []


async def test_half_copied_range_equals_ledgers(cluster: SmallCluster) -> None:
    rows = await sealed(cluster)
    more = await cluster.append(("book-0", b"more", []))
    await cluster.roll()
    await cluster.snapshot_covers(2)
    files = MemoryFiles()
    await offloader(cluster, files).offload(1)
    pipeline = cluster.pipeline()
    asked = ScanRange({0: (1, 7)}, (await pipeline.committed()).end)
    plan = await pipeline.plan(asked, LIVE)
    choice = await choose_cold(pipeline, files, plan)
    cold = [row for one in choice.partitions for row in (await read_cold(files, one)).to_pylist()]
    together = sorted((row["seqnum"], row["data"]) for row in cold)
    together += [(row[0], row[2]) for row in await read_rows(pipeline, choice.rest)]
    assert together == [(row[0], row[2]) for row in await read_rows(pipeline, plan)]
    assert together[:53] == [(row[0], row[2]) for row in rows[7:]] and more[0] in dict(together)


# -- kills and others


class Killed(Exception):
    """The kill of a process."""


class KilledFiles(MemoryFiles):
    """Files whose user is killed at the n-th call, before or after its effect."""

    def __init__(self, at: int, *, after: bool) -> None:
        super().__init__()
        self.left, self.after = at, after

    async def _step(self, call: Callable[[], object]) -> None:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Killed
        call()
        if self.left == 0:
            raise Killed

    async def create(self, path: str, data: bytes) -> None:
        await self._step(lambda: self.files.__setitem__(path, data))

    async def read(self, path: str) -> bytes:
        await self._step(lambda: None)
        return await super().read(path)


@pytest.mark.parametrize("after", [False, True])
async def test_killed_at_any_step_the_next_run_makes_it_whole_and_leaves_nothing(
    cluster: SmallCluster, after: bool
) -> None:
    rows = await sealed(cluster, 12)
    files = KilledFiles(0, after=after)
    kills = 0
    while True:
        kills += 1
        files.left = kills
        try:
            await offloader(cluster, files, slice_bytes=40, seed=kills).offload(1)
            break
        except Killed:
            assert (await cluster.record(1)).location.kind == IN_LEDGERS
    assert kills > 8
    work = offloader(cluster, files, seed=999)
    files.left = 10**6
    assert (await work.sweep()).deleted > 0
    manifest = await prove(files, (await cluster.record(1)).location.path)
    assert len(files.files) == 2 * len(manifest.slices) + 1, "the files of one attempt are left"
    assert await cold_rows(cluster.pipeline(), files) == rows
    assert (await work.sweep()).deleted == 0


async def test_what_a_term_record_names_outlasts_a_machine_that_loses_its_power(cluster: SmallCluster) -> None:
    """A file that was not flushed before its manifest is named would be lost in a power failure."""
    rows = await sealed(cluster)
    files = MemoryFiles()
    made = await offloader(cluster, files, slice_bytes=300).offload(1)
    files.lose_power()
    await prove(files, made.manifest)
    assert await cold_rows(cluster.pipeline(), files) == rows


class StallingFiles(MemoryFiles):
    """Files whose first user stalls before it writes its manifest."""

    def __init__(self) -> None:
        super().__init__()
        self.stalled, self.go_on = asyncio.Event(), asyncio.Event()

    async def create(self, path: str, data: bytes) -> None:
        if "manifest-" in path and not self.stalled.is_set():
            self.stalled.set()
            await self.go_on.wait()
        await super().create(path, data)


async def test_a_stalled_offloader_changes_nothing_of_what_another_one_named(cluster: SmallCluster) -> None:
    rows = await sealed(cluster)
    files = StallingFiles()
    zombie = asyncio.ensure_future(offloader(cluster, files, seed=1).offload(1))
    await files.stalled.wait()
    made = await offloader(cluster, files, seed=500).offload(1)
    files.go_on.set()
    with pytest.raises(OffloadRefused, match=r"^\[BOKI_OFFLOAD_REFUSED\].*changed by another process"):
        await zombie
    assert (await cluster.record(1)).location.path == made.manifest
    assert all(path.startswith(made.manifest.rpartition("/")[0]) for path in files.files), "its files are gone"
    await prove(files, made.manifest)
    assert await cold_rows(cluster.pipeline(), files) == rows


async def test_sweeping_spares_an_attempt_that_goes_on(cluster: SmallCluster) -> None:
    await sealed(cluster)
    files = StallingFiles()
    going_on = asyncio.ensure_future(offloader(cluster, files, seed=1).offload(1))
    await files.stalled.wait()
    assert await offloader(cluster, files, seed=500).sweep() == (0, 0)
    files.go_on.set()
    await prove(files, (await going_on).manifest)


async def test_records_lost_between_plan_and_swap_refuse_it(cluster: SmallCluster) -> None:
    await sealed(cluster)
    files = StallingFiles()
    work = asyncio.ensure_future(offloader(cluster, files).offload(1))
    await files.stalled.wait()
    await cluster.lose(Lost(1, 0, 0, 1, b"a disk", True))
    files.go_on.set()
    with pytest.raises(OffloadRefused, match="given up"):
        await work
    assert (await cluster.record(1)).location.kind == IN_LEDGERS


async def test_a_record_that_was_touched_by_who_declares_losses_refuses_the_swap(cluster: SmallCluster) -> None:
    await sealed(cluster)
    files = StallingFiles()
    work = asyncio.ensure_future(offloader(cluster, files).offload(1))
    await files.stalled.wait()
    value, version = await cluster.ledgers.store.get(term_path(1))
    await cluster.ledgers.store.set(term_path(1), value, version=version)
    files.go_on.set()
    with pytest.raises(OffloadRefused, match="changed by another process"):
        await work
    assert files.files == {}, "its files can never be named, and are gone"


async def test_a_copied_term_that_dies_loses_ledgers_and_files(cluster: SmallCluster) -> None:
    await sealed(cluster)
    files = MemoryFiles()
    work = offloader(cluster, files)
    made = await work.offload(1)
    await cluster.trim("book-0", 2**62)
    await cluster.trim("book-1", 2**62)
    async with asyncio.timeout(300):
        while (record := await cluster.record(1)).location.kind != DELETED:
            await asyncio.sleep(0)
    assert record.location.path == made.manifest, "who deletes the ledgers goes on naming the files"
    assert await work.sweep() == (3, 0) and files.files == {}
    assert (await cluster.record(1)).location.path == ""
    assert await cold_rows(cluster.pipeline(), files) == []


async def test_clusters_that_share_a_folder_delete_only_their_own_files(cluster: SmallCluster) -> None:
    """Both clusters count terms from 1, so only the id in the path tells their attempts apart."""
    files = MemoryFiles()
    rows = await sealed(cluster)
    await offloader(cluster, files, seed=1).offload(1)
    async with SmallCluster() as other:
        store = other.ledgers.store
        await store.set(INSTANCE_ID, b"another", version=(await store.get(INSTANCE_ID)).version)
        await sealed(other)
        await offloader(other, files, seed=500).offload(1)
        both = dict(files.files)
        for alone_of in (cluster, other):
            assert await offloader(alone_of, files).sweep() == (0, 0) and files.files == both
        assert await cold_rows(other.pipeline(), files) and await cold_rows(cluster.pipeline(), files) == rows


async def as_an_earlier_version_wrote_them(cluster: SmallCluster, files: MemoryFiles) -> None:
    """Move the files of term 1 to a path without the id of a cluster."""
    value, version = await cluster.ledgers.store.get(term_path(1))
    path = decode_record(value, 1).location.path
    moved = {name: "memory://cold/" + "/".join(name.split("/")[-3:]) for name in files.files}
    files.files = {moved[name]: data for name, data in files.files.items()}
    record = encode_record((await cluster.record(1)).at(COPIED, moved[path]))
    await cluster.ledgers.store.set(term_path(1), record, version=version)


async def test_files_without_an_id_are_read_and_deleted_only_where_no_other_cluster_is(
    cluster: SmallCluster,
) -> None:
    rows = await sealed(cluster)
    files = MemoryFiles()
    work = offloader(cluster, files)
    await work.offload(1)
    await as_an_earlier_version_wrote_them(cluster, files)
    files.files["memory://cold/term-1/v0-00/slice-000000.parquet"] = b"left by whom?"
    assert await cold_rows(cluster.pipeline(), files) == rows
    assert await work.sweep() == (0, 1), "nobody can say whose it is"
    assert await work.sweep(alone=True) == (1, 0) and await cold_rows(cluster.pipeline(), files) == rows
    await cluster.trim("book-0", 2**62)
    await cluster.trim("book-1", 2**62)
    async with asyncio.timeout(300):
        while (await cluster.record(1)).location.kind != DELETED:
            await asyncio.sleep(0)
    assert await work.sweep() == (0, 3)
    assert await work.sweep(alone=True) == (3, 0) and files.files == {}
    assert (await cluster.record(1)).location.path == ""


@pytest.mark.parametrize("kind", ["parquet", "index", "json", "*"])
@pytest.mark.parametrize("lost", [False, True])
async def test_a_copied_term_with_a_lost_or_damaged_file_is_offloaded_again(
    cluster: SmallCluster, kind: str, lost: bool
) -> None:
    rows = await sealed(cluster)
    files = MemoryFiles()
    before = (await offloader(cluster, files).offload(1)).manifest
    for path, data in list(files.files.items()):
        if fnmatch(path, f"*.{kind}"):
            files.files[path] = damaged(data)
            if lost:
                del files.files[path]
    made = await offloader(cluster, files, seed=100).offload(1)
    assert made.damage.startswith("[BOKI_COLD_") and made.rows == ROWS and not made.why
    assert (await cluster.record(1)).location.path == made.manifest != before
    assert await cold_rows(cluster.pipeline(), files) == rows
    await offloader(cluster, files).sweep()
    assert {path.rpartition("/")[0] for path in files.files} == {made.manifest.rpartition("/")[0]}


async def test_a_survey_finds_copied_terms_that_lost_a_file(cluster: SmallCluster) -> None:
    await sealed(cluster)
    files = MemoryFiles()
    work = offloader(cluster, files)
    await work.offload(1)
    running = {2: "it is running: `boki log roll 0` seals it"}
    assert await work.survey() == await work.survey(prove_copied=True) == ([], running)
    for path, data in sorted(files.files.items()):
        if "manifest-" in path:
            files.files[path] = data[:-1]
        else:
            del files.files[path]
        assert await work.survey() == ([1], running)
        files.files[path] = data
    path = next(path for path in files.files if path.endswith(".parquet"))
    files.files[path] = damaged(files.files[path])
    assert await work.survey() == ([], running), "its content is read only where that is asked for"
    assert await work.survey(prove_copied=True) == ([1], running)
    files.files.clear()
    with pytest.raises(ColdMissing, match="mounted"):
        await work.survey()


async def test_a_damaged_term_whose_ledgers_are_gone_is_named_as_lost(cluster: SmallCluster) -> None:
    await sealed(cluster)
    files = MemoryFiles()
    work = offloader(cluster, files, slice_bytes=300)
    made = await work.offload(1)
    path = min(path for path in files.files if path.endswith(".parquet"))
    del files.files[path]
    (shard,) = cluster.engine.core.state.places.terms[1].shards.values()
    await cluster.ledgers.clients[-1].delete(shard.ledger_id)
    left = dict(files.files)
    with pytest.raises(
        DataLoss,
        match=rf"^\[BOKI_DATA_LOSS\] the files of term 1 .*{path.rpartition('/')[2]}.*ledger {shard.ledger_id}",
    ):
        await work.offload(1)
    assert (await cluster.record(1)).location.path == made.manifest
    await work.sweep()
    assert left.items() <= files.files.items(), "what is whole can be read"


async def test_a_term_that_goes_on_or_is_not_covered_is_not_offloaded(cluster: SmallCluster) -> None:
    await cluster.append(("book-0", b"x", []))
    work = offloader(cluster, MemoryFiles())
    assert (await work.survey()).due == [], "there is no index snapshot yet"
    assert "boki log roll 0" in (await work.offload(1)).why
    await sealed(cluster, 4)
    assert (await work.offload(9)).why == "there is no such term"


# -- damage


async def test_a_damaged_or_missing_file_is_named_and_nothing_wrong_is_shown(cluster: SmallCluster) -> None:
    rows = await sealed(cluster)
    files = MemoryFiles()
    made = await offloader(cluster, files, slice_bytes=300).offload(1)
    pipeline = cluster.pipeline()
    for path in [path for path in files.files if not path.endswith(".index")]:
        whole = files.files.pop(path)
        with pytest.raises(ColdMissing, match=r"^\[BOKI_COLD_MISSING\]"):
            await cold_rows(pipeline, files)
        for damaged in (whole[:-1], whole[:50] + b"\0" + whole[51:], b""):
            files.files[path] = damaged
            with pytest.raises(ColdDamaged, match=r"^\[BOKI_COLD_DAMAGED\].*" + path.rpartition("/")[2][:12]):
                await cold_rows(pipeline, files)
        files.files[path] = whole
    assert await cold_rows(pipeline, files) == rows
    index = next(path for path in files.files if path.endswith(".index"))
    files.files[index] = b"\x90"
    with pytest.raises(ColdDamaged):
        await prove(files, made.manifest)


async def test_a_file_that_is_not_what_was_written_fails_the_proof(cluster: SmallCluster) -> None:
    class Forgetful(MemoryFiles):
        async def create(self, path: str, data: bytes) -> None:
            await super().create(path, data[:-3] if path.endswith("0.parquet") else data)

    await sealed(cluster)
    with pytest.raises(ColdDamaged, match="hash"):
        await offloader(cluster, Forgetful()).offload(1)
    assert (await cluster.record(1)).location.kind == IN_LEDGERS


async def test_of_a_term_whose_verdicts_changed_the_files_are_not_used(cluster: SmallCluster) -> None:
    await sealed(cluster)
    files = MemoryFiles()
    await offloader(cluster, files).offload(1)
    places = cluster.engine.core.state.places.terms[1]
    places.shards[0].digest ^= 1
    pipeline = cluster.pipeline()
    choice = await choose_cold(pipeline, files, await whole_plan(pipeline))
    assert not choice.partitions


async def test_a_record_that_an_older_program_wrote_back_keeps_its_manifest(cluster: SmallCluster) -> None:
    await sealed(cluster)
    made = await offloader(cluster, MemoryFiles()).offload(1)
    record = await cluster.record(1)
    assert not record.reclaimed, "who knows no files goes to the ledgers"
    assert (
        encode_record(record.at(DELETED)) != encode_record(record) and record.at(DELETED).location.path == made.manifest
    )


def test_errors_say_whether_to_try_again() -> None:
    assert PlanStale("x").retryable and not ColdDamaged("x").retryable and isinstance(ColdMissing("x"), BokiError)
