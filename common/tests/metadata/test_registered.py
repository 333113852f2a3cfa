"""A role is expected at its place until it says goodbye, begins elsewhere, or is forgotten."""

from __future__ import annotations

import asyncio

import pytest

from boki_common.errors import CorruptData
from boki_common.metadata.registered import forget, register, registered_path, registrations
from boki_common.metadata.store import MetadataStore
from boki_common.net.connection import Address

NOBODY = Address("127.0.0.1", 1)


async def test_a_role_that_begins_again_at_its_place_is_expected_once(store: MetadataStore) -> None:
    assert await registrations(store, "engine") == {}
    for _ in range(2):
        await register(store, "engine", host="node", address=NOBODY, free_port=False)
    await register(store, "engine", host="other", address=NOBODY, free_port=False)
    await register(store, "engine", host="node", address=Address("", 0, "/run/e.sock"), free_port=False)
    assert list(await registrations(store, "engine")) == [
        "node/127.0.0.1:1",
        "node/unix:///run/e.sock",
        "other/127.0.0.1:1",
    ]
    assert await registrations(store, "sequencer") == {}
    assert await forget(store, "engine", "node/127.0.0.1:1")
    assert not await forget(store, "engine", "node/127.0.0.1:1")
    assert len(await registrations(store, "engine")) == 2


async def test_on_a_free_port_it_takes_over_from_those_that_are_gone_and_from_no_other(store: MetadataStore) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    listening = Address("127.0.0.1", server.sockets[0].getsockname()[1])
    async with server:
        await register(store, "engine", host="node", address=NOBODY, free_port=True)
        await register(store, "engine", host="node", address=Address("127.0.0.1", 2), free_port=False)
        await register(store, "engine", host="other", address=Address("127.0.0.1", 3), free_port=True)
        await register(store, "sequencer", host="node", address=Address("127.0.0.1", 4), free_port=True)
        await register(store, "engine", host="node", address=listening, free_port=True)
        await register(store, "engine", host="node", address=Address("127.0.0.1", 5), free_port=True)
    assert sorted(await registrations(store, "engine")) == sorted(
        ["node/127.0.0.1:2", "other/127.0.0.1:3", f"node/{listening}", "node/127.0.0.1:5"]
    )
    assert list(await registrations(store, "sequencer")) == ["node/127.0.0.1:4"]


async def test_a_value_that_is_no_registration_names_its_path(store: MetadataStore) -> None:
    made = await register(store, "engine", host="node", address=NOBODY, free_port=False)
    await store.set(registered_path("engine", made.place), b"[]", version=0)
    with pytest.raises(CorruptData, match="expected a registration in /boki/registered/engine/node%2F127"):
        await registrations(store, "engine")
