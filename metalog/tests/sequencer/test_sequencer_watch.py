"""Who is there: killed, stopped, replaced, never seen; and what absence says after our own session was lost."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest

from boki_common.metadata.memory import MemoryStore
from boki_common.net.messages import MessagePeer, serve_messages
from boki_common.net.strangers import BEFORE_FIRST_FRAME
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.sequencer.sequencer_watch import SequencerWatch
from boki_metalog.sequencer.standby_rules import Presence
from boki_metalog.settings import SequencerSettings
from boki_metalog.terms.metadata_tree import read_view
from boki_metalog.terms.view import Installed

SETTINGS = SequencerSettings(standby_check_s=0.02, confirm_timeout_s=60.0, retry_first_s=0.005)
"""With these a sequencer that lives has all the time to answer."""


class Watching:
    """A watch, and waiting for what it sees."""

    def __init__(
        self, store: MemoryStore, settings: SequencerSettings = SETTINGS, session_timeout_s: float = 30.0
    ) -> None:
        self._changed = asyncio.Event()
        self.store = store
        self.watch = SequencerWatch(store, settings, on_change=self._changed.set, session_timeout_s=session_timeout_s)
        self.installed: Installed

    async def look(self) -> None:
        found = (await read_view(self.store)).view.installed(0)
        assert found is not None
        self.installed = found
        self.watch.look_at({0: found})

    async def until(self, presence: Presence) -> None:
        while self.watch.presence(0, self.installed.term) is not presence:
            await self._changed.wait()
            self._changed.clear()


@pytest.fixture
async def watching(cluster: Any) -> AsyncIterator[Watching]:
    made = Watching(await cluster.store())
    yield made
    await made.watch.close()


@pytest.fixture
async def impatient(cluster: Any) -> AsyncIterator[Watching]:
    """Who does not answer at once is gone."""
    made = Watching(await cluster.store(), dataclasses.replace(SETTINGS, confirm_timeout_s=0.01))
    yield made
    await made.watch.close()


async def test_it_serves_until_its_process_is_gone(cluster: Any, watching: Watching) -> None:
    sequencer = await cluster.serving(standby_check_s=60.0)
    await watching.look()
    await watching.until(Presence.SERVES)
    assert watching.watch.presence(0, 99) is Presence.UNKNOWN, "of this term nothing is known"
    await sequencer._process._server.close()
    await watching.until(Presence.GONE)


async def test_a_lost_connection_is_no_proof(sequencer: Any, watching: Watching) -> None:
    """The direct call finds it there: it goes on serving, and was never called gone."""
    await watching.look()
    await watching.until(Presence.SERVES)
    server = sequencer.term_server
    (mine,) = list(server._peers)
    mine.close()
    seen = []
    watching.watch.on_change = lambda: seen.append(watching.watch.presence(0, 1))
    while len(server._peers) < 1 or mine in server._peers:
        await asyncio.sleep(0)
    assert seen == [] and watching.watch.presence(0, 1) is Presence.SERVES


async def test_a_term_that_ends_is_noticed_at_once(cluster: Any, watching: Watching) -> None:
    sequencer = await cluster.serving()
    await watching.look()
    await watching.until(Presence.SERVES)
    sequencer.term_server.end(sequencer.term_server._term_over())
    await watching.until(Presence.OVER)


class Mute:
    """Accepts connections and says nothing, like a stopped process."""

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        assert opcode == protocol.OP_HELLO

    def peer_lost(self, peer: MessagePeer, error: object) -> None:
        pass


class Dropping:
    """A sequencer whose connections break at the second question, while it is under way."""

    def __init__(self, welcome: protocol.Welcome, begun: list[Dropping]) -> None:
        self._welcome = welcome
        self._asked = False
        begun.append(self)

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        if self._asked:
            peer.close()
        else:
            peer.respond(request_id, opcode, protocol.encode_welcome(self._welcome))
        self._asked = True

    def peer_lost(self, peer: MessagePeer, error: object) -> None:
        pass


async def test_a_connection_that_is_lost_during_a_question_is_no_proof(sequencer: Any, watching: Watching) -> None:
    address, welcome = sequencer.address, sequencer.welcome()
    await sequencer._process._server.close()
    connections: list[Dropping] = []
    server = await serve_messages(address, lambda _: Dropping(welcome, connections), strangers=BEFORE_FIRST_FRAME)
    seen = []
    watching.watch.on_change = lambda: seen.append(watching.watch.presence(0, 1))
    try:
        await watching.look()
        while len(connections) < 4:
            await asyncio.sleep(0)
        assert seen == [Presence.SERVES]
    finally:
        await watching.watch.close()
        await server.close()


async def test_a_stopped_process_is_gone_after_the_time_of_one_call(sequencer: Any, impatient: Watching) -> None:
    address = sequencer.address
    await sequencer._process._server.close()
    server = await serve_messages(address, lambda _: Mute(), strangers=BEFORE_FIRST_FRAME)
    try:
        await impatient.look()
        await impatient.until(Presence.GONE)
    finally:
        await server.close()


async def test_who_is_named_but_does_not_begin_is_over_after_a_while(sequencer: Any, impatient: Watching) -> None:
    await impatient.look()
    later = Installed(2, 99, sequencer.incarnation, "", 0)
    impatient.installed = later
    impatient.watch.look_at({0: later})
    await impatient.until(Presence.OVER)


async def test_who_was_never_seen_and_is_not_listed_is_gone(cluster: Any, watching: Watching) -> None:
    watching.installed = Installed(1, 5, "ee" * 16, "", 0)
    watching.watch.look_at({0: watching.installed})
    await watching.until(Presence.GONE)


async def test_after_a_lost_session_absence_says_nothing_for_a_session_timeout(cluster: Any) -> None:
    """The metadata store was away: everybody's ephemerals are gone, not everybody."""
    store = await cluster.store()
    watching = Watching(store, session_timeout_s=0.2)
    lost = asyncio.Event()
    store.on_session_lost(lost.set)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    store.expire_session()
    await lost.wait()
    watching.installed = Installed(1, 5, "ee" * 16, "", 0)
    watching.watch.look_at({0: watching.installed})
    await watching.until(Presence.GONE)
    assert loop.time() - began_s >= 0.15
    await watching.watch.close()


async def test_who_was_seen_is_asked_where_it_was(sequencer: Any, watching: Watching) -> None:
    """Its membership is gone, and so is the metadata store: it answers, so it serves."""
    await watching.look()
    await watching.until(Presence.SERVES)
    await sequencer._spare.membership.leave()
    watching.store.disconnect()
    server = sequencer.term_server
    before = list(server._peers)
    before[0].close()
    while not server._peers or before[0] in server._peers:
        await asyncio.sleep(0)
    assert watching.watch.presence(0, 1) is Presence.SERVES
    watching.store.reconnect()
