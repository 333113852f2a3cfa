"""What is up is what answers; everything that is listed is asked, and what does not answer says why."""

from __future__ import annotations

import pytest

from boki_cli.facts import cluster_status
from boki_cli.facts.cluster_facts import Part
from boki_cli.facts.cluster_status import _each_once, engine_addresses, gather
from boki_common.bookkeeper import layout
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, encode
from boki_common.errors import InvalidArgument
from boki_common.ids import BookieId
from boki_common.metadata import registered
from boki_common.metadata.memory import MemoryStore
from boki_common.net.connection import Address
from boki_metalog.terms.metadata_tree import ensure_view
from boki_metalog.terms.view import VIEW_PATH, encode_view


def test_engines_of_a_url() -> None:
    assert engine_addresses("boki://h:1/") == [Address("h", 1)]
    assert engine_addresses("boki://h, other:9,unix:///x") == [
        Address("h", 7040),
        Address("other", 9),
        Address("", 0, "/x"),
    ]
    with pytest.raises(InvalidArgument, match="expected boki://host:port or unix:///path, found 'http://h'"):
        engine_addresses("http://h")


async def test_what_does_not_answer_is_down_with_the_reason(store: MemoryStore) -> None:
    registered = await layout.register_bookie(store, "one-bookie", Address("127.0.0.1", 1))
    found = await gather("unix:///none/engine.sock", store, timeout_s=1)
    assert [(part.role, part.up) for part in found.parts] == [("engine", False), ("bookie", False)]
    assert not found.anything_up
    assert "cannot connect to unix:///none/engine.sock" in found.engines[0].problem
    assert (found.bookies[0].name, found.bookies[0].address) == ("one-bookie", "127.0.0.1:1")
    assert "is it up?" in found.bookies[0].problem
    assert found.view is not None
    assert found.view["logs"] == {"0": None}
    await registered.leave()


async def test_without_metadata_only_engines_are_asked() -> None:
    found = await gather("unix:///none/engine.sock", None, timeout_s=1)
    assert (len(found.engines), found.bookies, found.view) == (1, [], None)
    assert cluster_status.DEFAULT_PORT == 7040


async def test_what_is_expected_and_not_listed_is_down_and_says_how_to_forget_it(store: MemoryStore) -> None:
    cookie = layout.Cookie(BookieId("b1"), "node:/disk", ("node:/disk",), ours=True)
    await store.create(layout.cookie_path("b1"), layout.encode_cookie(cookie))
    for role, port in (("engine", 1), ("sequencer", 2), ("controller", 3)):
        await registered.register(store, role, host="node", address=Address("127.0.0.1", port), free_port=False)
    found = await gather("unix:///none/engine.sock", store, timeout_s=1)
    lost = {part.role: part for part in found.parts[1:]}
    assert sorted(lost) == ["bookie", "controller", "engine", "sequencer"]
    assert not any(part.up for part in lost.values())
    assert "(its data: node:/disk)" in lost["bookie"].problem
    assert "`boki forget bookie b1`" in lost["bookie"].problem
    for role, port in (("engine", 1), ("sequencer", 2), ("controller", 3)):
        assert f"`boki forget {role} node/127.0.0.1:{port}`" in lost[role].problem


@pytest.mark.parametrize(("url_is_usual", "engines"), [(False, 2), (True, 1)])
async def test_the_usual_url_is_a_part_only_if_the_cluster_knows_it(
    store: MemoryStore, url_is_usual: bool, engines: int
) -> None:
    await registered.register(store, "engine", host="node", address=Address("127.0.0.1", 1), free_port=False)
    for url, count in (("unix:///none/engine.sock", engines), ("boki://127.0.0.1:1", 1)):
        found = await gather(url, store, timeout_s=1, url_is_usual=url_is_usual)
        assert len(found.engines) == count and found.engines[-1].address == "127.0.0.1:1"


def test_an_engine_that_was_asked_at_two_addresses_is_one_part() -> None:
    def engine(address: str, **status: str) -> Part:
        return Part("engine", address, bool(status), address, status=dict(status))

    found = [
        engine("localhost:1", incarnation="e"),
        engine("127.0.0.1:1", incarnation="e"),
        engine("a:1"),
        engine("b:1"),
    ]
    assert [part.address for part in _each_once(found)] == ["localhost:1", "a:1", "b:1"]


async def test_an_engine_of_the_url_that_is_expected_and_not_listed_says_so_too(store: MemoryStore) -> None:
    await registered.register(store, "engine", host="node", address=Address("127.0.0.1", 1), free_port=False)
    found = await gather("boki://127.0.0.1:1", store, timeout_s=1)
    assert [(part.name, part.up) for part in found.engines] == [("127.0.0.1:1", False)]
    assert "`boki forget engine node/127.0.0.1:1`" in found.engines[0].problem


async def test_a_ledger_that_is_written_now_shows_its_bookies(store: MemoryStore) -> None:
    view = (await ensure_view(store)).view.with_term(0, ledger_id=7, sequencer="s", token="t", start_time_ms=0)
    await store.set(VIEW_PATH, encode_view(view), version=0)
    found = await gather("unix:///none/engine.sock", store, timeout_s=1)
    assert found.ledgers == []
    metadata = LedgerMetadata(2, 2, 2, ((0, (BookieId("a"), BookieId("b"))),))
    await layout.create_ledger(store, 7, encode(metadata))
    (one,) = (await gather("unix:///none/engine.sock", store, timeout_s=1)).ledgers
    assert (one.ledger_id, one.what, one.log, one.wanted, one.bookies) == (7, "metalog of log 0", 0, 0, ["a", "b"])
    await store.set(layout.ledger_path(7), b"nonsense", version=0)
    (one,) = (await gather("unix:///none/engine.sock", store, timeout_s=1)).ledgers
    assert one.problem
