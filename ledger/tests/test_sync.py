"""The blocking face of the ledger client, against real bookies in a loop of their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from inspect import signature
from pathlib import Path

import pytest
from tests.real_bookies import start_bookie

import boki_ledger.sync
from boki_bookie.bookie import Bookie
from boki_common.errors import ClosedError, LedgerFenced, NoSuchLedger, SettingsError
from boki_common.metadata.sqlite import SqliteStore
from boki_common.runtime.loop_thread import LoopThread
from boki_common.runtime.memory_disk import MemoryDisk
from boki_common.testing.cut_off import cut_off
from boki_ledger.client import LedgerClient
from boki_ledger.settings import LedgerSettings

pytestmark = pytest.mark.blocking_allowed


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The metadata address of a cluster of three bookies."""
    path: Path = tmp_path_factory.mktemp("sync") / "metadata.db"
    thread = LoopThread("bookies")
    store = thread.do(lambda: SqliteStore(str(path)))

    async def start() -> list[Bookie]:
        await store.start()
        return [await start_bookie(MemoryDisk(f"bookie {number}"), store) for number in range(3)]

    bookies = thread.run(start())
    yield f"sqlite://{path}"
    for bookie in bookies:
        thread.run(bookie.close())
    thread.run(store.close())
    thread.stop()


def test_a_ledger_from_making_to_deleting(uri: str) -> None:
    with boki_ledger.sync.connect(uri) as client:
        with client.create(custom={"application": b"test"}) as writer:
            assert writer.append(b"first") == 0
            assert writer.append_many(b"%d" % number for number in range(1, 600)) == list(range(1, 600))
            tickets = [writer.submit(b"%d" % number) for number in range(600, 610)]
            assert [ticket.result(timeout=10.0) for ticket in tickets] == list(range(600, 610))
            assert writer.last_acked == 609
        metadata = client.metadata_of(writer.ledger_id)
        assert metadata.last_entry == 609 and metadata.ctime is not None
        with client.open(writer.ledger_id, recover=False) as reader:
            assert reader.closed and reader.last_entry == 609
            assert [bytes(payload) for payload in reader.read(0, 2)] == [b"first", b"1", b"2"]
            found = [(entry_id, bytes(payload)) for entry_id, payload in reader.entries()]
            assert found == [(0, b"first"), *((number, b"%d" % number) for number in range(1, 610))]
            assert [entry_id for entry_id, _ in reader.entries(5, 7)] == [5, 6, 7]
            assert [entry_id for entry_id, _ in reader.follow(600)] == list(range(600, 610))
        assert writer.ledger_id in client.list()
        client.delete(writer.ledger_id)
        with pytest.raises(NoSuchLedger):
            client.metadata_of(writer.ledger_id)


def test_many_entries_wait_for_room_in_a_small_window(uri: str) -> None:
    with boki_ledger.sync.connect(uri, settings=LedgerSettings(window_entries=4)) as client, client.create() as writer:
        assert writer.append_many(b"x" for _ in range(100)) == list(range(100))
        assert [writer.submit(b"y").entry_id for _ in range(20)] == list(range(100, 120))
        assert writer.close() == 119


def test_several_threads_share_a_writer(uri: str) -> None:
    with boki_ledger.sync.connect(uri) as client:
        writer = client.create()
        ids: list[int] = []
        threads = [threading.Thread(target=lambda: ids.extend(writer.append_many([b"x"] * 50))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(ids) == list(range(200)) and writer.close() == 199


def test_an_open_ledger_is_followed_while_another_thread_writes(uri: str) -> None:
    with boki_ledger.sync.connect(uri) as client, boki_ledger.sync.connect(uri) as other:
        writer = client.create()

        def write() -> None:
            for number in range(20):
                writer.append(b"%d" % number)
            writer.close()

        thread = threading.Thread(target=write)
        thread.start()
        with other.open(writer.ledger_id, recover=False) as reader:
            assert [bytes(payload) for _, payload in reader.follow(0)] == [b"%d" % number for number in range(20)]
        thread.join()


def test_errors_are_those_of_the_client_and_a_failed_block_abandons(uri: str) -> None:
    with boki_ledger.sync.connect(uri) as client:
        writer = client.create()
        writer.append(b"x")
        assert client.open(writer.ledger_id, recover=True).last_entry == 0
        with pytest.raises(LedgerFenced):
            writer.append(b"y")
        with pytest.raises(RuntimeError), client.create() as abandoned:
            abandoned.append(b"x")
            raise RuntimeError
        assert client.metadata_of(abandoned.ledger_id).state.name == "OPEN"
    with pytest.raises(ClosedError):
        client.list()
    client.close()
    assert not [one for one in threading.enumerate() if one.name == "boki_ledger.sync"]


def test_recovery_is_given_what_is_kept_elsewhere(uri: str) -> None:
    with boki_ledger.sync.connect(uri) as client:
        writer = client.create()
        writer.append_many([b"0", b"1"])
        with client.open(writer.ledger_id, recover=True, floor=3, carried={2: b"carried"}) as reader:
            assert [bytes(payload) for _, payload in reader.entries()] == [b"0", b"1", b"carried"]
        assert client.metadata_of(writer.ledger_id).length == 9


def test_whoever_opens_may_say_what_the_client_takes() -> None:
    here, there = (signature(kind.open).parameters for kind in (boki_ledger.sync.Client, LedgerClient))
    assert list(here) == list(there)


def test_an_address_that_is_none(uri: str) -> None:
    with pytest.raises(SettingsError, match="expected a metadata address"):
        boki_ledger.sync.connect("nonsense")
    assert not [one for one in threading.enumerate() if one.name == "boki_ledger.sync"]


def test_a_wait_that_is_cut_off_loses_no_entry(uri: str) -> None:
    with (
        boki_ledger.sync.connect(uri) as client,
        client.create() as writer,
        client.open(writer.ledger_id, recover=False) as reader,
    ):
        entries = reader.follow(0)
        for number in range(2):
            with cut_off(client._thread.run):
                next(entries)
            writer.append(b"%d" % number)
            entry_id, payload = next(entries)
            assert (entry_id, bytes(payload)) == (number, b"%d" % number)
