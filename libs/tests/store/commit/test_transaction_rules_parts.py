"""Parts of a transaction that run elsewhere: what goes there, what comes back, and what the record expects then."""

from __future__ import annotations

import pytest

import boki
from bokilib import Contribution
from bokistore import BokiStore
from bokistore.commit.transaction_rules import (
    Context,
    Staged,
    decode_context,
    decode_read,
    decode_written,
    encode_context,
    encode_read,
    encode_written,
)
from bokistore.model.events import Commit, Deleted, Entry, Expires, Ops
from bokistore.model.operations import Inc, Set

EVENTS: tuple[Staged, ...] = (
    Commit("x", (Set("a", 1), Inc("n", 2)), 0),
    Ops("y", (Inc("n", 1),)),
    Deleted("z"),
    Expires("x", None),
    Entry("users", "ann", True),
)


def test_what_goes_and_what_comes_back_is_what_it_was() -> None:
    context = Context(7, "snapshot", EVENTS)
    assert decode_context(encode_context(context)) == context
    assert decode_written(encode_written(EVENTS)) == EVENTS and decode_written(b"") == ()
    assert encode_written(()) == b"" and decode_read(encode_read(["a", "b"])) == ("a", "b")


async def test_a_part_reads_where_its_transaction_does_with_what_was_written_so_far(store: BokiStore) -> None:
    await store.object("x").set("n", 1)
    tx = await store.begin()
    tx["x"].inc("n", 10)
    context = await tx.context()
    await store.object("x").set("n", 100)
    part = store.within(context, [])
    assert await part["x"].get("n") == 11
    part["x"].inc("n", 100)
    part["y"].set("m", 1)
    read, written = part.part()
    after = store.within(context, [written])
    assert (await after["x"].get("n"), await after["y"].get("m")) == (111, 1)
    tx.take(read, written)
    assert await tx["x"].get("n") == 111
    with pytest.raises(boki.Conflict):
        await store.commit(tx)


async def test_what_parts_read_and_wrote_is_in_the_record_of_their_transaction(store: BokiStore) -> None:
    await store.object("x").set("n", 1)
    tx = await store.begin()
    part = store.within(await tx.context(), [])
    assert await part["x"].get("n") == 1
    part["y"].set("m", 1)
    tx.take(*part.part())
    await store.commit(tx)
    assert await store.object("y").get("m") == 1
    late = await store.begin()
    part = store.within(await late.context(), [])
    assert await part["x"].get("n") == 1
    late["z"].set("a", 1)
    late.take(part.part()[0], b"")
    await store.object("x").set("n", 2)
    with pytest.raises(boki.Conflict):
        await store.commit(late)
    assert await store.object("z").value() is None, "a part that wrote nothing was read all the same"


async def test_a_part_takes_no_contribution_since_none_would_come_back(store: BokiStore) -> None:
    tx = await store.begin()
    part = store.within(await tx.context(), [])
    with pytest.raises(boki.InvalidArgument, match="in the transaction that called this workflow"):
        part.add(Contribution())
    tx.add(Contribution())
