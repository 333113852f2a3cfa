"""One object: operations, their results and errors, and what another process sees of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

import boki
from bokilib.append.log import Log
from bokilib.errors import AppendUnknown, AtomicTooLarge, ForeignRecord, NotEncodable
from bokilib.records.codec import Json
from bokilib.records.tags import store_object
from bokilib.testing import Fault, FaultyBook
from bokistore import BokiStore, Inc, OperationFailed, Push, ResultUnknown, Set, StoreSettings, Transaction
from libs.tests.store.conftest import Another


async def test_all_operations_and_their_results(store: BokiStore, another: Another) -> None:
    x = store.object("x")
    assert not await x.exists() and await x.value() is None and await x.get("a", 7) == 7
    await x.set("a.b", {"c": [1, None]})
    await x.make_object("o")
    await x.make_array("l")
    assert [await x.push("l", n, limit=2) for n in range(3)] == [1, 2, 2]
    assert await x.pop("l") == 2
    assert [await x.inc("n"), await x.inc("n", 0.5), await x.inc("n", -2)] == [1, 1.5, -0.5]
    assert [await x.delete("a.b.c.0"), await x.delete("a.z")] == [True, False]
    await x.merge("a", {"new": True, "b": {"d": None}})
    expected = {"a": {"b": {"c": [None]}, "new": True}, "o": {}, "l": [1], "n": -0.5}
    assert await x.value() == expected
    assert await (await another()).object("x").value(consistency="linearizable") == expected
    assert await x.get("a.b.c") == [None] and await x.get("l.0") == 1 and await x.get("l.7", "none") == "none"


@dataclass
class Place:
    shelf: int
    label: str = "none"


async def test_a_value_of_another_type_than_asked_for_raises_with_its_place(store: BokiStore) -> None:
    x = store.object("x")
    await x.set("", {"n": 5, "text": "5", "yes": True, "null": None, "l": ["a"], "place": {"shelf": 7}})
    assert await x.get("n", 0, type=int) == 5 and await x.get("n", 0.5, type=float) == 5.0
    assert await x.get("l", [], type=list[str]) == ["a"] and await x.get("place", type=Place) == Place(7)
    assert [await x.get("none", 1, type=int), await x.get("none", type=int), await x.get("null", type=int)] == [
        1,
        None,
        None,
    ]
    for path in ("text", "yes", "null", "l"):
        with pytest.raises(NotEncodable, match=f"object 'x', path '{path}': what is stored is no int") as raised:
            await x.get(path, 0, type=int)
        assert (raised.value.object, raised.value.path) == ("x", path)
    async with store.transaction() as tx:
        tx["x"].set("n", "six")
        assert await tx["x"].get("text", type=str) == "5"
        with pytest.raises(NotEncodable, match="path 'n'"):
            await tx["x"].get("n", 0, type=int)
    async with store.snapshot() as then:
        assert await then.get("y", "n", 7, type=int) == 7
        with pytest.raises(NotEncodable, match="object 'x', path 'n'"):
            await then.get("x", "n", 7, type=int)


async def test_one_that_cannot_be_done_raises_for_its_caller_and_changes_nothing(store: BokiStore) -> None:
    x = store.object("x")
    await x.set("a", "text")
    with pytest.raises(OperationFailed, match="nothing can be added to a text") as failed:
        await x.inc("a")
    assert (failed.value.object, failed.value.path, failed.value.operation) == ("x", "a", "inc")
    assert await x.value() == {"a": "text"}
    with pytest.raises(OperationFailed):
        await store.object("never").pop("a")
    assert not await store.object("never").exists()


async def test_several_operations_are_one_record_and_each_counts_by_itself(store: BokiStore) -> None:
    x = store.object("x")
    before = store.log.appends
    assert await x.apply(Set("a", 1), Inc("a", 2), Push("l", 1)) == [None, 3, 1]
    with pytest.raises(OperationFailed, match="inc"):
        await x.apply(Set("b", 1), Inc("l", 1), Set("c", 1))
    assert await x.value() == {"a": 3, "l": [1], "b": 1, "c": 1}
    assert store.log.appends == before + 2


async def test_results_are_right_among_others(store: BokiStore, another: Another) -> None:
    """Each gets the sum at its own place of the log: no two the same, none left out."""
    others = [await another() for _ in range(4)]
    sums = await asyncio.gather(*(one.object("n").inc("n") for one in [store, *others] for _ in range(10)))
    assert sorted(sums) == list(range(1, 51))


async def test_what_a_caller_is_given_is_his(store: BokiStore) -> None:
    x = store.object("x")
    await x.set("a", [1])
    value = await x.value()
    assert value is not None and isinstance(value["a"], list)
    value["a"].append(2)
    value["b"] = 1
    got = await x.get("a")
    assert got == [1] and isinstance(got, list)
    got.append(3)
    assert await x.value() == {"a": [1]}
    changes = x.watch(start=(await x.history())[0].seqnum)
    change = (await anext(changes)).changes[0].after
    assert isinstance(change, dict)
    change["a"] = 4
    await x.push("list", [5])
    popped = await x.pop("list")
    assert isinstance(popped, list)
    popped.append(6)
    assert await x.value() == {"a": [1], "list": []}
    assert [version.value for version in await x.history()][-2:] == [{"a": [1], "list": [[5]]}, {"a": [1], "list": []}]


async def test_what_it_is_given_is_taken_as_it_is_at_the_call(store: BokiStore, another: Another) -> None:
    """A program goes on with its lists: what was written stays, here, for others, in checkpoints and in later transactions."""
    x = store.object("x")
    ways: dict[str, Callable[[Json], Awaitable[object]]] = {
        "set": lambda mine: x.set("set", mine),
        "push": lambda mine: x.push("push", mine),
        "merge": lambda mine: x.merge("", {"merge": mine}),
        "send": lambda mine: x.send(Set("send", mine)),
        "transact": lambda mine: store.transact(_puts, "transact", mine, False),
        "read before": lambda mine: store.transact(_puts, "read before", mine, True),
        "sent": lambda mine: store.transact(_sends, "sent", mine),
    }
    for way, write in ways.items():
        mine: list[Json] = [1, {"a": [2]}]
        await write(mine)
        mine[1]["a"].append("later")  # type: ignore[index,union-attr,call-overload]  # a dict with a list
        mine.append("later")
        assert await x.get(way) == ([[1, {"a": [2]}]] if way == "push" else [1, {"a": [2]}]), way
    await store.checkpointer.checkpoint("x")
    await store.transact(_copies)
    assert await x.get("copy") == await x.get("set")
    assert await (await another()).object("x").value(consistency="linearizable") == await x.value()
    assert "later" not in str(await x.value())


async def _puts(tx: Transaction, way: str, mine: Json, reads: bool) -> None:
    if reads:
        await tx["x"].exists()
    tx["x"].set(way, mine)


async def _sends(tx: Transaction, way: str, mine: Json) -> None:
    tx.send("x", Set(way, mine))


async def _copies(tx: Transaction) -> None:
    tx["x"].set("copy", await tx["x"].get("set"))


async def test_to_send_is_one_round_trip_and_returns_where(store: BokiStore) -> None:
    faulty = FaultyBook(store.log.book)
    seqnum = await BokiStore(faulty).object("x").send(Inc("n", 2))
    assert len(faulty.operations) == 1
    assert (await store.object("x").view(consistency="linearizable")).seen == seqnum


async def test_names_of_any_length(store: BokiStore) -> None:
    names = ["x" * 1_000, "x" * 1_000 + "y", "ü" * 300, " ", "a/b"]
    for number, name in enumerate(names):
        await store.object(name).set("n", number)
    assert [await store.object(name).get("n") for name in names] == list(range(5))
    with pytest.raises(boki.InvalidArgument):
        store.object("")


async def test_two_names_with_one_tag_are_two_objects(store: BokiStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if their hashes met: streams are shared, ids are compared."""
    for module in ("bokistore.read.snapshot_reads.tags", "bokistore.commit.transaction_rules.tags"):
        monkeypatch.setattr(f"{module}.store_object", lambda name: "store/o/shared")
        monkeypatch.setattr(f"{module}.store_checkpoint", lambda name: "store/ck/shared")
    x, y = store.object("x"), store.object("y")
    for _ in range(3):
        await x.inc("n")
        await y.inc("n", 10)
    assert await store.checkpointer.checkpoint("x")
    assert await store.checkpointer.checkpoint("y")
    await x.inc("n")
    fresh = BokiStore(store.log.book, settings=StoreSettings(cached_views=0, aux_data=False))
    assert [await fresh.object(name).value() for name in "xyz"] == [{"n": 4}, {"n": 30}, None]
    assert await store.delete("x")
    assert [await fresh.object(name).value() for name in "xyz"] == [None, {"n": 30}, None]


@pytest.mark.parametrize("value", [object(), {1: 2}, 2**64, float("nan")])
async def test_what_is_no_json_is_refused_before_it_is_sent(store: BokiStore, value: object) -> None:
    with pytest.raises(NotEncodable):
        await store.object("x").set("a", value)  # type: ignore[arg-type]
    assert store.log.appends == 0


async def test_what_is_too_large_is_refused_before_it_is_sent(store: BokiStore) -> None:
    with pytest.raises(AtomicTooLarge, match="bytes"):
        await store.object("x").set("a", "x" * 600_000)
    with pytest.raises(boki.InvalidArgument, match="one operation"):
        await store.object("x").apply()
    assert store.log.appends == 0


async def test_an_unknown_outcome_is_raised_and_not_repeated(store: BokiStore) -> None:
    lost = BokiStore(FaultyBook(store.log.book, Fault(0, "lost")))
    with pytest.raises(AppendUnknown) as unknown:
        await lost.object("x").inc("n")
    assert isinstance(await unknown.value.outcome(), boki.Committed)
    assert await store.object("x").value(consistency="linearizable") == {"n": 1}


async def test_an_operation_whose_past_is_trimmed_meanwhile_is_there_without_a_result(store: BokiStore) -> None:
    class Trimming(FaultyBook):
        """Everything goes between the append and the look at it."""

        async def read_prev_many(self, queries, *, consistency="session"):  # type: ignore[no-untyped-def]
            await store.log.book.trim([(store_object("x"), 2**62)])
            return await super().read_prev_many(queries, consistency=consistency)

    await store.object("x").inc("n")
    with pytest.raises(ResultUnknown) as unknown:
        await BokiStore(Trimming(store.log.book)).object("x").inc("n")
    assert not unknown.value.definite and unknown.value.seqnum


@pytest.mark.parametrize("error", [boki.Unreachable, boki.DiskFull])
async def test_an_error_of_the_read_behind_an_operation_does_not_deny_it(
    store: BokiStore, error: type[boki.BokiError]
) -> None:
    """These errors are definite, of the read that they end: the operation before it is in the log."""

    class Away(FaultyBook):
        async def read_prev_many(self, queries, *, consistency="session"):  # type: ignore[no-untyped-def]
            raise error("no engine answers")

    with pytest.raises(ResultUnknown) as unknown:
        await BokiStore(Away(store.log.book)).object("x").inc("n")
    assert not unknown.value.definite and isinstance(unknown.value.__cause__, error)
    assert await store.object("x").value(consistency="linearizable") == {"n": 1}


async def test_a_record_of_somebody_else_in_an_objects_stream_is_named(store: BokiStore) -> None:
    ticket = store.log.book.submit(b"hello", tags=[store_object("x")])
    await ticket
    with pytest.raises(ForeignRecord):
        await store.object("x").value()


async def test_reads_at_a_snapshot_are_of_it(store: BokiStore, another: Another) -> None:
    x = store.object("x")
    places = [await x.send(Inc("n", 1)) for _ in range(5)]
    assert [await x.get("n", at=place) for place in places] == [1, 2, 3, 4, 5]
    assert await x.get("n", at=places[0] - 1) is None
    fresh = (await another()).object("x")
    assert [await fresh.get("n", at=place) for place in reversed(places)] == [5, 4, 3, 2, 1]
    with pytest.raises(boki.InvalidArgument, match="has seen"):
        await x.get("n", at=2**60)
    with pytest.raises(boki.InvalidArgument, match="seqnum"):
        await x.get("n", at=0)


async def test_a_log_of_ones_own(store: BokiStore) -> None:
    log = Log(store.log.book)
    assert BokiStore(log).log is log
    with pytest.raises(boki.InvalidArgument, match="Log"):
        BokiStore(log, random=None, hook=Hook())
    assert repr(store.object("x")) == "<bokistore.StoreObject 'x'>"


class Hook:
    """Reverses."""

    name = "reverse"

    async def seal(self, events: bytes) -> bytes:
        return events[::-1]

    async def open(self, sealed: bytes) -> bytes:
        return sealed[::-1]


async def test_a_payload_hook_sees_all_that_is_stored(store: BokiStore) -> None:
    hooked = BokiStore(store.log.book, hook=Hook())
    await hooked.object("x").set("secret", "text")
    record = await store.log.book.read_prev(store_object("x"))
    assert record is not None and b"secret" not in record.data and b"terces" in record.data
    assert await BokiStore(store.log.book, hook=Hook()).object("x").get("secret") == "text"
