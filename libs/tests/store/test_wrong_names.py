"""Names, paths and times that no record can hold: refused at once, and the rest of a transaction, and others beside it, commit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from boki.testing import MemoryCluster
from boki_common.errors import InvalidArgument
from bokistore import BokiStore, Set, Transaction

SURROGATE = "a\ud800"


@pytest.fixture
async def store(cluster: MemoryCluster) -> BokiStore:
    return BokiStore((await cluster.connect()).book("shop"))


@pytest.mark.parametrize("name", [SURROGATE, 5, b"x", ""])
async def test_names_are_text_that_utf8_can_encode(store: BokiStore, name: Any) -> None:
    with pytest.raises(InvalidArgument):
        store.object(name)
    with pytest.raises(InvalidArgument):
        store.collection(name, dict)
    with pytest.raises(InvalidArgument):
        await store.collection("pets", dict).create(name, {})
    calls = (
        lambda tx: tx[name].set("v", 1),
        lambda tx: tx.send(name, Set("v", 1)),
        lambda tx: tx.delete(name),
        lambda tx: tx.expire(name, 1),
    )
    for call in calls:

        async def body(tx: Transaction, call: Any = call) -> None:
            tx["o"].inc("n")
            with pytest.raises(InvalidArgument):
                call(tx)

        await asyncio.gather(store.transact(body), store.object("beside").inc("n"))
    assert await store.object("o").value() == {"n": len(calls)}
    assert await store.object("beside").value() == {"n": len(calls)}


@pytest.mark.parametrize("name", [SURROGATE])
async def test_reads_of_names_that_cannot_be_encoded_are_refused(store: BokiStore, name: str) -> None:
    for read in (store.values([name]), store.sweep([name]), store.tend(name), store.delete(name)):
        with pytest.raises(InvalidArgument):
            await read


@pytest.mark.parametrize("path", [SURROGATE, 5, None, b"a", ["a"]])
async def test_paths_are_text_that_utf8_can_encode(store: BokiStore, path: Any) -> None:
    with pytest.raises(InvalidArgument):
        await store.object("o").set(path, 1)
    with pytest.raises(InvalidArgument):
        await store.object("o").get(path)
    with pytest.raises(InvalidArgument):
        await store.object("o").inc(path)
    assert await store.object("o").value() is None


@pytest.mark.parametrize("at_ms", [2**64, 2**70, -1, 1.5, "5", True, float("nan")])
async def test_an_expiry_time_fits_a_record(store: BokiStore, at_ms: Any) -> None:
    await store.object("o").set("v", 1)
    with pytest.raises(InvalidArgument, match="milliseconds since 1970"):
        await store.expire("o", at_ms)
    await store.expire("o", 2**64 - 1)
    assert await store.object("o").value() == {"v": 1}
