"""Apache BookKeeper's layout: paths and values as recorded from 4.18, and what makes them."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from boki_common.bookkeeper import layout
from boki_common.bookkeeper.data_formats_pb2 import BookieServiceInfoFormat, CookieFormat
from boki_common.bookkeeper.layout import Cookie, LedgerLayout
from boki_common.errors import CorruptData, NodeExists, NoNode, SettingsError
from boki_common.ids import BookieId
from boki_common.metadata.memory import Fault, MemoryStore, MemoryTree
from boki_common.metadata.store import ensure_path
from boki_common.net.connection import Address
from boki_common.testing.machine import CountingRandom

VECTORS = Path(__file__).parents[1] / "vectors" / "bookkeeper"
COUNTED = int.from_bytes(range(16)) - 1
"""The next token of 16 bytes: 0, 1, 2, ..."""


def nodes(name: str) -> dict[str, bytes]:
    text = (VECTORS / f"zk-{name}.txt").read_text()
    return {path: bytes.fromhex(value) for path, value in re.findall(r"^(/\S*): ([0-9a-f]*)$", text, re.MULTILINE)}


async def test_a_new_cluster_is_what_apache_makes(store: Any) -> None:
    instance = await layout.init_cluster(store, rng=CountingRandom(COUNTED))
    assert instance == "00010203-0405-4607-8809-0a0b0c0d0e0f"
    for path, value in nodes("hierarchical-00-init").items():
        found = await store.get(path)
        assert found.version == 0
        if path == layout.INSTANCE_ID:
            assert len(found.value) == len(value)
        else:
            assert found.value == value
    assert await store.children(layout.LEDGERS) == ["INSTANCEID", "LAYOUT", "available", "cookies", "idgen"]


async def test_many_start_a_cluster_at_once_and_agree() -> None:
    tree = MemoryTree()
    stores = [MemoryStore(tree) for _ in range(8)]
    for store in stores:
        await store.start()
    instances = await asyncio.gather(*(layout.init_cluster(store) for store in stores))
    assert len(set(instances)) == 1
    assert await layout.init_cluster(stores[0]) == instances[0] == await layout.instance_id(stores[1])
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", instances[0])


async def test_lost_answers_do_not_stop_a_new_cluster(store: Any) -> None:
    for folder in (layout.READ_ONLY, layout.COOKIES, layout.ID_GENERATOR):
        await ensure_path(store, folder)
    store.fail_next_write(Fault.ANSWER_LOST)
    instance = await layout.init_cluster(store, rng=CountingRandom(COUNTED))
    assert instance.startswith("00010203")


async def test_a_cluster_keeps_the_layout_it_was_made_with(store: Any) -> None:
    for path, value in nodes("longhierarchical-00-init").items():
        await store.create(path, value)
    await layout.init_cluster(store)
    assert await layout.read_layout(store) is LedgerLayout.LONG_HIERARCHICAL


async def test_a_new_cluster_may_have_the_long_layout(store: Any) -> None:
    assert await layout.read_layout(store) is LedgerLayout.HIERARCHICAL, "what is made by default"
    await layout.init_cluster(store, layout=LedgerLayout.LONG_HIERARCHICAL)
    assert (await store.get(layout.LAYOUT)).value == nodes("longhierarchical-00-init")[layout.LAYOUT]


async def test_a_cluster_of_another_layout_is_refused(store: Any) -> None:
    await store.create(layout.LEDGERS)
    await store.create(layout.LAYOUT, b"2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1")
    with pytest.raises(SettingsError, match="expected the hierarchical or the long hierarchical layout"):
        await layout.init_cluster(store)


@pytest.mark.parametrize(
    ("ledger_id", "path"),
    [
        (0, "/ledgers/00/0000/L0000"),
        (1_234_567_890, "/ledgers/12/3456/L7890"),
        (2**31 - 2, "/ledgers/21/4748/L3646"),
        (2**31 - 1, "/ledgers/000/0000/0021/4748/L3647"),
        (2**63 - 1, "/ledgers/922/3372/0368/5477/L5807"),
    ],
)
def test_paths_of_ledgers(ledger_id: int, path: str) -> None:
    assert layout.ledger_path(ledger_id) == path
    assert LedgerLayout.HIERARCHICAL.ledger_of(path) == ledger_id


def test_paths_of_the_long_layout_are_what_apache_writes() -> None:
    assert LedgerLayout.LONG_HIERARCHICAL.path(0) in nodes("longhierarchical-02-ledger-created")
    assert LedgerLayout.LONG_HIERARCHICAL.path(2**40) == LedgerLayout.HIERARCHICAL.path(2**40)


@given(st.integers(0, 2**63 - 1) | st.integers(0, 2**32), st.sampled_from(LedgerLayout))
def test_a_path_names_one_ledger(ledger_id: int, made: LedgerLayout) -> None:
    assert made.ledger_of(made.path(ledger_id)) == ledger_id


@pytest.mark.parametrize(
    "path",
    ["/ledgers", "/ledgers/LAYOUT", "/ledgers/00/0000", "/ledgers/000/0000/0000/0000/L0000", "/ledgers/0/00000/L0000",
     "/ledgers/00/0000/0000", "/ledgers/999/9999/9999/9999/L9999"],
)  # fmt: skip
def test_what_is_no_ledger(path: str) -> None:
    assert LedgerLayout.HIERARCHICAL.ledger_of(path) is None


async def test_ledgers_are_listed_in_order_among_everything_else(store: Any) -> None:
    assert await layout.list_ledgers(store) == []
    await layout.init_cluster(store)
    ids = [7, 0, 123_456, 2**31 - 2, 2**31 - 1, 2**40, 9_999]
    for ledger_id in ids:
        await layout.create_ledger(store, ledger_id, b"%d" % ledger_id)
    await ensure_path(store, "/ledgers/underreplication/ledgers/0000")
    await ensure_path(store, "/ledgers/00/9999")
    await ensure_path(store, "/ledgers/00/0000/urL0001")
    assert await layout.list_ledgers(store) == sorted(ids)
    with pytest.raises(NodeExists):
        await layout.create_ledger(store, 7, b"other")


async def test_ledgers_of_the_long_layout_are_listed(store: Any) -> None:
    made = LedgerLayout.LONG_HIERARCHICAL
    await layout.init_cluster(store, layout=made)
    ids = [7, 0, 2**31 - 1, 2**40, 2**63 - 1]
    for ledger_id in ids:
        await layout.create_ledger(store, ledger_id, b"%d" % ledger_id, made)
    await ensure_path(store, LedgerLayout.HIERARCHICAL.path(5))
    assert await layout.list_ledgers(store) == sorted(ids)


async def test_the_folder_of_a_ledger_may_vanish_while_it_is_made(store: Any) -> None:
    await ensure_path(store, "/ledgers/00/0000")
    deletions = 0

    def plan(operation: str, path: str) -> Fault:
        nonlocal deletions
        if operation == "create" and path.endswith("L0005") and deletions < 2:
            deletions += 1
            store.tree.delete("/ledgers/00/0000", 0)
        return Fault.NONE

    store.faults = plan
    await layout.create_ledger(store, 5, b"five")
    assert deletions == 2
    assert await layout.list_ledgers(store) == [5]


def test_registrations_are_what_apache_writes() -> None:
    found = 0
    for name in ("hierarchical-01-bookies", "hierarchical-11-read-only", "longhierarchical-01-bookies"):
        for path, value in nodes(name).items():
            bookie = path.rpartition("/")[2]
            if path.startswith(layout.AVAILABLE):
                found += 1
                assert path == layout.bookie_path(bookie, read_only="readonly" in path)
                service = Address("127.0.0.1", int(bookie.rpartition(":")[2]))
                assert layout.decode_bookie_service(value) == service
                assert layout.encode_bookie_service(service) == value
                assert layout.decode_bookie_address(bookie, value) == Address.parse(bookie)
    assert found == 9


def test_cookies_are_what_apache_writes() -> None:
    for path, value in nodes("hierarchical-01-bookies").items():
        if path.startswith(layout.COOKIES + "/"):
            bookie = BookieId(path.rpartition("/")[2])
            number = int(bookie[-1]) - 1
            cookie = Cookie(
                bookie,
                f"bookie{number}/journal",
                (f"bookie{number}/ledgers",),
                instance_id="9d3380a2-e0ba-457c-a3f5-15be7587134b",
            )
            assert layout.cookie_path(bookie) == path
            assert layout.decode_cookie(value) == cookie
            assert layout.encode_cookie(cookie) == value


def test_a_cookie_of_ours() -> None:
    cookie = Cookie(BookieId("b-1"), "/data/journal é", ("/a", "/b c"), index_dirs="1\t/index")
    assert layout.decode_cookie(layout.encode_cookie(cookie)) == cookie
    ours = replace(cookie, ours=True)
    assert layout.decode_cookie(layout.encode_cookie(ours)) == ours
    assert layout.encode_cookie(ours).startswith(b"5\n# boki")
    for checkpoints in ((), (7,), (7, 0, 2**50)):
        living = replace(ours, life=layout.CookieLife(12, "0f" * 16, checkpoints))
        value = layout.encode_cookie(living)
        assert layout.decode_cookie(value) == living
        apache = text_format.Parse(value.partition(b"\n")[2].decode(), CookieFormat())  # comments are skipped
        assert apache == text_format.Parse(layout.encode_cookie(cookie).partition(b"\n")[2].decode(), CookieFormat())


def test_a_cookie_whose_life_cannot_be_read_is_no_cookie() -> None:
    good = layout.encode_cookie(
        Cookie(BookieId("b-1"), "/j", ("/a",), ours=True, life=layout.CookieLife(12, "0f", (1, 2)))
    )
    for bad in (b"12 xyz 1,2", b"12", b"12 0f 1,,2", b"-1 0f 1", b"12 0f 1,2 3"):
        with pytest.raises(CorruptData, match="checkpoints of a bookie's life"):
            layout.decode_cookie(good.replace(b"12 0f 1,2", bad))


def test_a_mark_inside_of_a_field_is_none() -> None:
    cookie = Cookie(BookieId("b-1"), layout.OUR_MARK.decode(), ("/a",))
    assert layout.decode_cookie(layout.encode_cookie(cookie)) == cookie


@pytest.mark.parametrize(
    "value",
    [b"", b"4\n", b"5\n", b"5\nbookieHost: 1", b"5\n\xff", b'5\nbookieHost: "a" journalDir: "b" ledgerDirs: "2\\tc"'],
)
def test_damaged_cookies(value: bytes) -> None:
    with pytest.raises(CorruptData, match="expected"):
        layout.decode_cookie(value)


@pytest.mark.parametrize(
    "value",
    [
        b"\xff\xff",
        b"garbage",
        BookieServiceInfoFormat().SerializeToString() + b"\x3a\x00",
        BookieServiceInfoFormat(
            endpoints=[BookieServiceInfoFormat.Endpoint(id="x", port=1, host="h", protocol="http")]
        ).SerializeToString(),
        BookieServiceInfoFormat(
            endpoints=[BookieServiceInfoFormat.Endpoint(id="x", port=70_000, host="h", protocol="bookie-rpc")]
        ).SerializeToString(),
    ],
)
def test_damaged_registrations(value: bytes) -> None:
    with pytest.raises(CorruptData, match="expected"):
        layout.decode_bookie_service(value)


async def test_bookies_are_found_by_their_id(store: Any) -> None:
    await layout.init_cluster(store)
    ours = "6f1e4c1a-0000-4000-8000-000000000001"
    membership = await layout.register_bookie(store, ours, Address.parse("10.0.0.1:3181"))
    reading = await layout.register_bookie(store, "b-2", Address("10.0.0.2", 3181), read_only=True)
    await store.create(layout.bookie_path("old:3181"), b"")
    assert await layout.available_bookies(store) == [ours, "old:3181"]
    assert await layout.available_bookies(store, read_only=True) == ["b-2"]
    assert await layout.bookie_address(store, ours) == Address("10.0.0.1", 3181)
    assert await layout.bookie_address(store, "b-2") == Address("10.0.0.2", 3181)
    assert await layout.bookie_address(store, "old:3181") == Address("old", 3181)
    assert await layout.bookie_address(store, "gone:3181") == Address("gone", 3181)
    await membership.leave()
    await reading.leave()
    with pytest.raises(NoNode, match="is it up"):
        await layout.bookie_address(store, ours)
    assert await layout.available_bookies(store) == ["old:3181"]
    with pytest.raises(CorruptData, match="registered no address"):
        layout.decode_bookie_address("no-address", b"")
