"""A data ledger whose last entries only the metalog has is closed with them, or not at all; and they count as there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from boki_bookie.space.limbo_rules import names
from boki_cli.testing.bookies import BookieCluster
from boki_cli.testing.logs import ENGINE, LogWithCarried, log_with_carried
from boki_common import limits
from boki_common.metadata.membership import member_path
from boki_common.metadata.store import ensure_path
from boki_common.records.batch_builder import BatchBuilder
from boki_common.records.record_batch import RecordBatch
from boki_common.records.tag_names import pack_names
from boki_logbook.scan.metalogs import CarriedTail, ordered_of
from boki_metalog.entries.metalog_entry import Carried, Close, MetalogEntry, ShardEnd, encode

if TYPE_CHECKING:
    from boki_cli.testing.commands import Outcome, RunCommandLine


def make_log(cluster: BookieCluster, *, ended: bool, spoilt: Mapping[int, bytes] = {}) -> LogWithCarried:
    async def make() -> LogWithCarried:
        await cluster.ready()
        return await log_with_carried(cluster.store, cluster.client, ended=ended, spoilt=spoilt)

    return cluster.run(make())


def entries_of(cluster: BookieCluster, ledger_id: int) -> list[bytes]:
    async def read() -> list[bytes]:
        reader = await cluster.client.open(ledger_id, recover=False)
        try:
            assert reader.closed
            return [bytes(payload) for payload in await reader.read(0, reader.last_entry)]
        finally:
            await reader.close()

    return cluster.run(read())


def state(cluster: BookieCluster, ledger_id: int) -> str:
    return cluster.run(cluster.client.metadata_of(ledger_id)).state.name


def test_of_the_last_entries_of_a_shard_it_is_known_what_is_carried() -> None:
    tail = CarriedTail()
    for end in range(1, 2 * limits.CARRIED_BEHIND + 1):
        carried = (Carried(7, b"of another"), Carried(8, b"%d" % end)) if end % 2 else ()
        tail.take(MetalogEntry(end - 1, end, 1, (), (), carried), 8, end)
    kept = range(limits.CARRIED_BEHIND, 2 * limits.CARRIED_BEHIND, 2)
    assert tail.payloads == {entry: b"%d" % (entry + 1) for entry in kept}


def test_what_the_metalog_carries_of_an_ended_shard_is_in_the_recovered_ledger(
    run_boki: RunCommandLine, bookies: BookieCluster
) -> None:
    log = make_log(bookies, ended=True)
    done = run_boki("ledger", "recover", str(log.data.ledger_id), "--metadata", bookies.uri, "--json")
    assert (done.code, json.loads(done.out)["last_entry"]) == (0, 2), done.err
    assert entries_of(bookies, log.data.ledger_id) == log.payloads


def test_a_ledger_that_a_log_still_orders_is_not_recovered_until_its_shard_ends(
    run_boki: RunCommandLine, bookies: BookieCluster
) -> None:
    log = make_log(bookies, ended=False)
    call = ("ledger", "recover", str(log.data.ledger_id), "--metadata", bookies.uri)
    run_boki(*call).refused("boki log roll 0", code=4)
    assert state(bookies, log.data.ledger_id) == "OPEN"
    bookies.run(log.data.append(log.payloads[1]))  # its engine goes on
    for number in (4, 5):  # the next entry, and one more that proves that this one is acknowledged
        commands = (Close(0),) if number == 4 else ()
        shards = (ShardEnd(0, 3, 3),) if number == 4 else ()
        bookies.run(log.metalog.append(encode(MetalogEntry(3, 3, number, shards, commands))))
    done = run_boki(*call)
    assert done.code == 0, done.err
    assert entries_of(bookies, log.data.ledger_id) == log.payloads


def test_a_spare_of_an_engine_that_is_up_is_left_to_it(run_boki: RunCommandLine, bookies: BookieCluster) -> None:
    path = member_path("engine", ENGINE)

    async def spare() -> int:
        await bookies.ready()
        custom = {"boki.role": b"data", "boki.incarnation": ENGINE.encode()}
        writer = await bookies.client.create(custom=custom)
        await ensure_path(bookies.store, path.rpartition("/")[0])
        await bookies.store.create(path, b"{}")
        return writer.ledger_id

    ledger_id = bookies.run(spare())
    call = ("ledger", "recover", str(ledger_id), "--metadata", bookies.uri)
    run_boki(*call).refused("is up", code=4)
    assert state(bookies, ledger_id) == "OPEN"
    bookies.run(bookies.store.delete(path, version=0))
    assert run_boki(*call).code == 0
    assert bookies.run(ordered_of(bookies.store, bookies.client, ledger_id)) is None


@pytest.mark.parametrize("ended", [True, False])
def test_a_repair_closes_no_ledger_short(run_boki: RunCommandLine, bookies: BookieCluster, ended: bool) -> None:
    log = make_log(bookies, ended=ended)
    ledger_id = log.data.ledger_id
    metadata = bookies.run(bookies.client.metadata_of(ledger_id))
    bookie = next(one.bookie_id for one in bookies.bookies if one is not None and names(metadata, one.bookie_id))
    done = run_boki("ledger", "repair", "--bookie", bookie, "--recover-open", "--metadata", bookies.uri)
    if ended:
        assert done.code == 0, done.err
        assert entries_of(bookies, ledger_id) == log.payloads
    else:
        assert done.code == 1 and "boki log roll 0" in done.err
        assert state(bookies, ledger_id) == "OPEN"


def verify(run: RunCommandLine, cluster: BookieCluster) -> tuple[Outcome, dict[str, Any]]:
    done = run("log", "verify", "--metadata", cluster.uri, "--json")
    return done, json.loads(done.out.splitlines()[0])


@pytest.mark.parametrize("ended", [True, False])
def test_what_only_the_metalog_has_is_verified_while_its_ledger_may_be_given_it(
    run_boki: RunCommandLine, bookies: BookieCluster, ended: bool
) -> None:
    make_log(bookies, ended=ended)
    done, report = verify(run_boki, bookies)
    assert done.code == 0, done.err
    assert (report["faults"], report["entries"], report["records"], report["carried"]) == ([], 3, 3, 2)


def test_a_ledger_that_is_closed_without_what_the_metalog_carries_is_a_fault(
    run_boki: RunCommandLine, bookies: BookieCluster
) -> None:
    log = make_log(bookies, ended=True)
    bookies.run(log.data.append(log.payloads[1]))
    bookies.run(log.data.close())
    done, report = verify(run_boki, bookies)
    assert (done.code, report["carried"], report["entries"]) == (1, 0, 2)
    (fault,) = report["faults"]
    assert "entry 2 of shard 0" in fault and "closed without it" in fault


def test_what_the_metalog_carries_is_not_declared_lost(run_boki: RunCommandLine, bookies: BookieCluster) -> None:
    log = make_log(bookies, ended=True)
    bookies.run(bookies.client.delete(log.data.ledger_id))
    call = ("log", "lost", "1", "0", "0", "3", "--reason", "a fire", "--metadata", bookies.uri)
    done = run_boki(*call)
    assert done.code == 4 and "carries entry 1 of shard 0, and 1 more of these" in done.err


def other_entry(shard: int, first: int, *names: tuple[int, bytes]) -> bytes:
    """An entry of one record, whose payload opens with these names of tags. It has none."""
    builder = BatchBuilder()
    builder.start_run(1, bytes(16), 1, 1)
    builder.add(b"", 0, pack_names(names), b"data")
    batch = RecordBatch.parse(memoryview(b"".join(builder.finish())))
    return b"".join(batch.at(1, shard, first))


@pytest.mark.parametrize("written", [False, True], ids=["only carried", "written too"])
@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (b"garbage", "hold no record batches"),
        (other_entry(7, 2), "expected an entry of shard 0 of term 1"),
        (other_entry(0, 1), "found records 1 to below 2"),
    ],
    ids=["no batch", "of another shard", "begins earlier"],
)
def test_what_is_carried_and_nobody_can_read_is_a_fault_and_can_be_declared_lost(
    run_boki: RunCommandLine, bookies: BookieCluster, bad: bytes, said: str, written: bool
) -> None:
    log = make_log(bookies, ended=True, spoilt={2: bad})
    if written:
        for payload in log.payloads[1:]:
            bookies.run(log.data.append(payload))
    done, report = verify(run_boki, bookies)
    (fault,) = report["faults"]
    assert done.code == 1 and "entry 2 of shard 0" in fault and said in fault, fault
    lost = ("log", "lost", "1", "0", "--reason", "poisoned", "--metadata", bookies.uri)
    done = run_boki(*lost[:4], "1", "2", *lost[4:])
    assert done.code == 4 and ("can be read" if written else "carries entry 1 of shard 0") in done.err
    done = run_boki(*lost[:4], "2", "3", *lost[4:])
    assert done.code == 4 and "--forget-rows" in done.err, "it is lost; only what the log decided by it is asked about"
    done = run_boki(*lost[:4], "2", "3", "--forget-rows", *lost[4:])
    assert done.code == 4 and "has no sequencer" in done.err, "all that is missing is who orders it"


def test_a_record_that_nobody_can_open_is_a_fault(run_boki: RunCommandLine, bookies: BookieCluster) -> None:
    make_log(bookies, ended=True, spoilt={0: other_entry(0, 0, (3, b"name of tag 3"))})
    done, report = verify(run_boki, bookies)
    (fault,) = report["faults"]
    assert done.code == 1 and "entry 0 of shard 0" in fault and "1 record that nobody can open" in fault
    assert report["entries"] == 3, "and is ordered as any"


def test_a_metalog_entry_that_is_none_is_a_fault(run_boki: RunCommandLine, bookies: BookieCluster) -> None:
    log = make_log(bookies, ended=False)
    for _ in range(2):  # the first is known to be acknowledged
        bookies.run(log.metalog.append(b"garbage"))
    done, report = verify(run_boki, bookies)
    (fault,) = report["faults"]
    assert done.code == 1 and f"metalog ledger {log.metalog.ledger_id}" in fault and "expected a metalog entry" in fault
    assert report["entries"] == 3, "what comes before it is looked at"
