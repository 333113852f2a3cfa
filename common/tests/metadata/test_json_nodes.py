"""Nodes of one JSON object: read with their version, written at exactly the one that was read, settled if the answer is lost."""

from __future__ import annotations

from typing import Final

import pytest

from boki_common.errors import BadVersion, CorruptData
from boki_common.json_node import NO_NODE, JsonNode
from boki_common.metadata.json_nodes import read_node, write_node
from boki_common.metadata.memory import Fault, MemoryStore
from boki_common.metadata.store import MetadataStore, ensure_path
from boki_common.testing.machine import CountingRandom

PATH: Final = "/some/where/node"


class Note(JsonNode, frozen=True, kw_only=True):
    version: int = 3
    text: str = ""


async def read(store: MetadataStore) -> tuple[Note, int]:
    return await read_node(store, Note, PATH, what="a note")


async def test_a_write_takes_the_version_that_was_read_or_none(store: MetadataStore) -> None:
    assert await read(store) == (Note(), NO_NODE)
    rng = CountingRandom()
    first = await write_node(store, PATH, Note(text="one"), version=NO_NODE, rng=rng)
    assert first[0].token and await read(store) == first
    with pytest.raises(BadVersion, match=PATH):
        await write_node(store, PATH, Note(text="two"), version=NO_NODE, rng=rng)
    second = await write_node(store, PATH, first[0], version=first[1], rng=rng)
    assert second[0].token != first[0].token and await read(store) == second
    with pytest.raises(BadVersion):
        await write_node(store, PATH, Note(text="three"), version=first[1], rng=rng)
    assert await read(store) == second


@pytest.mark.parametrize("version", [NO_NODE, 0])
@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST])
async def test_a_lost_answer_is_settled(stores: list[MemoryStore], fault: Fault, version: int) -> None:
    await ensure_path(stores[0], PATH.rpartition("/")[0])
    if version != NO_NODE:
        await write_node(stores[0], PATH, Note(), version=NO_NODE, rng=CountingRandom())
    stores[0].fail_next_write(fault)
    written = await write_node(stores[0], PATH, Note(text="x"), version=version, rng=CountingRandom(5))
    assert await read(stores[1]) == written == (written[0], version + 1)


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b'{"version": 1}', b'{"text": 3}', b'{"version": 4}'])
async def test_an_object_of_another_kind_or_version_is_refused_by_name(store: MetadataStore, value: bytes) -> None:
    _, version = await write_node(store, PATH, Note(), version=NO_NODE, rng=CountingRandom())
    await store.set(PATH, value, version=version)
    with pytest.raises(CorruptData, match=f"a note in {PATH}, found"):
        await read(store)
