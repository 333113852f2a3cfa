"""From whom a sequencer takes messages: the token in HELLO, the role that it names, and whose shards a connection speaks for."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from boki_common.cluster_token import NO_TOKEN, ClusterToken, parse
from boki_common.errors import ConnectionLost, NotPermitted, ProtocolError, Unauthenticated, from_wire
from boki_metalog.control.controller import Controller
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.entries.metalog_entry import Open, decode
from boki_metalog.entries.permissions import ADMINISTRATOR, CONTROLLER, ENGINE, OF_EARLIER_VERSION, PARTICIPANT
from boki_metalog.follow.sequencer_member import ask_sequencer, living_sequencers
from boki_metalog.sequencer.sequencer_watch import SequencerWatch
from boki_metalog.sequencer.standby_rules import Presence
from boki_metalog.settings import SequencerSettings

SECRET = "a-token-of-the-cluster-01"
TOKEN = parse(SECRET, "test")
OTHER = parse("a-token-of-another-one-02", "test")
A, B = "0a" * 16, "0b" * 16


@pytest.mark.parametrize("shown", [NO_TOKEN, OTHER], ids=["none", "wrong"])
@pytest.mark.parametrize("role", [OF_EARLIER_VERSION, PARTICIPANT, ENGINE, CONTROLLER, ADMINISTRATOR])
async def test_who_does_not_show_the_token_gets_an_error_and_the_connection_ends(
    cluster: Any, role: str, shown: ClusterToken
) -> None:
    sequencer = await cluster.serving(token=TOKEN)
    stranger = await cluster.stranger(sequencer.address)
    with pytest.raises(Unauthenticated, match="this sequencer asks for a cluster token, and ") as no:
        await stranger.peer.call(protocol.OP_HELLO, protocol.encode_hello((A,), token=shown, role=role))
    assert no.value.definite and not no.value.retryable
    await stranger.lost.wait()


async def test_nothing_that_comes_behind_a_refused_hello_is_processed(cluster: Any) -> None:
    """All in one read: the sequencer must not take the OPEN because a HELLO came first."""
    sequencer = await cluster.serving(token=TOKEN)
    stranger = await cluster.stranger(sequencer.address)
    hello = stranger.peer.request(protocol.OP_HELLO, protocol.encode_hello(token=OTHER, role=ENGINE))
    opening = stranger.peer.request(protocol.OP_OPEN, protocol.encode_open(1, A, 50))
    stranger.carry(1, 0, 1, 1, b"x")
    stranger.report(1, s0=(3, 1))
    yielding = stranger.peer.request(protocol.OP_YIELD, protocol.encode_term(1))
    for refused in await asyncio.gather(hello, opening, yielding, return_exceptions=True):
        assert isinstance(refused, Unauthenticated | ProtocolError | ConnectionLost)
    await stranger.lost.wait()
    assert sequencer.term == 1 and sequencer.status()["term"]["shards"] == []


async def test_tokens_are_exchanged_in_three_steps_without_a_refusal(cluster: Any) -> None:
    """Both files hold both, old first; then new first; then the old one goes."""
    old, new = SECRET, "a-token-of-another-one-02"
    servers = parse(old, "test")
    sequencer = await cluster.serving(token=servers)
    clients = parse(old, "test")
    for held in (f"{old}\n{new}", f"{new}\n{old}", new):
        servers.renew(parse(held, "test"))
        await cluster.participant(sequencer.address, token=clients, role=ENGINE)
        clients.renew(parse(held, "test"))
        await cluster.participant(sequencer.address, token=clients, role=ENGINE)
    with pytest.raises(Unauthenticated):
        await cluster.participant(sequencer.address, token=parse(old, "test"), role=ENGINE)


async def test_a_token_that_is_shown_where_none_is_asked_for_does_no_harm(cluster: Any, sequencer: Any) -> None:
    engine = await cluster.participant(sequencer.address, token=TOKEN, role=ENGINE)
    assert await engine.open(1, A, 50) == 0
    assert sequencer.status()["asks_for_token"] is False


async def test_status_says_whether_a_token_is_asked_for_and_never_which(cluster: Any) -> None:
    sequencer = await cluster.serving(token=TOKEN)
    participant = await cluster.participant(sequencer.address, token=TOKEN, role=PARTICIPANT)
    status = bytes(await participant.peer.call(protocol.OP_STATUS))
    assert msgspec.json.decode(status)["asks_for_token"] is True and SECRET.encode() not in status
    assert SECRET not in repr(protocol.decode_hello(memoryview(protocol.encode_hello(token=TOKEN, role=ENGINE))))


async def test_a_hello_of_an_earlier_version_is_read_and_one_of_ours_is_read_by_it() -> None:
    earlier = msgspec.msgpack.encode({"versions": [1], "incarnations": [A]})
    hello = protocol.decode_hello(memoryview(earlier))
    assert (hello.incarnations, hello.role, hello.auth) == ((A,), OF_EARLIER_VERSION, None)

    class Earlier(msgspec.Struct, frozen=True):
        versions: tuple[int, ...]
        incarnations: tuple[str, ...]

    ours = protocol.encode_hello((A,), token=TOKEN, role=ENGINE)
    assert msgspec.msgpack.decode(ours, type=Earlier) == Earlier((1,), (A,))


# -- whose shards


async def test_a_connection_speaks_for_its_own_shards_only(cluster: Any, sequencer: Any) -> None:
    owner = await cluster.participant(sequencer.address, role=ENGINE)
    thief = await cluster.participant(sequencer.address, B, role=ENGINE)
    assert await owner.open(1, A, 50) == 0
    assert await thief.open(1, B, 60) == 1
    thief.report(1, s0=(3, 1), s1=(2, 1))
    refused = from_wire(await thief.pushed(protocol.OP_REFUSED))
    assert isinstance(refused, NotPermitted) and "shard 0 of " + A in str(refused)
    thief.carry(1, 0, 1, 1, b"x")
    assert isinstance(from_wire(await thief.pushed(protocol.OP_REFUSED)), NotPermitted)
    with pytest.raises(NotPermitted, match="shard 0"):
        await thief.close_shard(1, 0)
    for refused in (thief.open(1, A, 50), thief.open(1, A, 51)):
        with pytest.raises(NotPermitted, match="named"):
            await refused
    assert [(row["shard"], row["records"]) for row in sequencer.status()["term"]["shards"]] == [(0, 0), (1, 2)]
    owner.report(1, s0=(3, 1))
    await owner.subscribe(1)
    while [row["records"] for row in sequencer.status()["term"]["shards"]] != [3, 2]:
        await owner.entries()


async def test_who_names_its_engine_in_hello_goes_on_with_its_shards(cluster: Any, sequencer: Any) -> None:
    """A reconnect: the old connection may still look alive, and a CLOSE may have to be said again."""
    before = await cluster.participant(sequencer.address, role=ENGINE)
    assert await before.open(1, A, 50) == 0
    after = await cluster.participant(sequencer.address, A, role=ENGINE)
    assert await after.open(1, A, 50) == 0
    assert await after.open(1, A, 51) == 1
    after.carry(1, 1, 1, 1, b"x")
    await after.close_shard(1, 0)
    await before.close()
    again = await cluster.participant(sequencer.address, A, role=ENGINE)
    await again.close_shard(1, 0)
    await again.close_shard(1, 1)


async def test_shards_of_an_engine_in_its_grace_are_nobodys_prey(cluster: Any) -> None:
    sequencer = await cluster.serving()
    owner = await cluster.participant(sequencer.address, role=ENGINE)
    assert await owner.open(1, A, 50) == 0
    thief = await cluster.participant(sequencer.address, role=ENGINE)
    await owner.close()
    await cluster.until(lambda: not sequencer.status()["term"]["engines"])
    with pytest.raises(NotPermitted, match="named"):
        await thief.open(1, A, 50)
    assert await (await cluster.participant(sequencer.address, A, role=ENGINE)).open(1, A, 50) == 0


async def test_who_names_an_engine_without_being_one_gets_none_of_its_shards(cluster: Any) -> None:
    sequencer = await cluster.serving(engine_grace_s=0.0)
    owner = await cluster.participant(sequencer.address, role=ENGINE)
    assert await owner.open(1, A, 50) == 0
    await cluster.participant(sequencer.address, A, role=PARTICIPANT)
    await owner.close()
    while sequencer.status()["term"]["shards"]:
        await asyncio.sleep(0)  # a participant that named it did not keep it alive


# -- who asks


async def test_a_sequencer_with_another_token_is_taken_neither_for_gone_nor_for_serving(cluster: Any) -> None:
    sequencer = await cluster.serving(token=TOKEN)
    store = await cluster.store()
    installed = (await cluster.view()).installed(0)
    for shown, expected in ((OTHER, Presence.UNKNOWN), (TOKEN, Presence.SERVES)):
        changed = asyncio.Event()
        settings = SequencerSettings(standby_check_s=0.01, retry_first_s=0.005)
        watch = SequencerWatch(store, settings, on_change=changed.set, token=shown)
        watch.look_at({0: installed})
        if expected is Presence.SERVES:
            await changed.wait()
        else:
            with pytest.raises(Unauthenticated):
                await ask_sequencer(sequencer.address, timeout_s=5.0, token=shown)
        assert watch.presence(0, installed.term) is expected
        await watch.close()
    assert list(await living_sequencers(store, timeout_s=5.0, token=TOKEN)) == [sequencer.incarnation]
    assert await living_sequencers(store, timeout_s=5.0, token=OTHER) == {}


async def test_a_cluster_with_a_token_changes_terms_and_stands_by(cluster: Any) -> None:
    first = await cluster.serving(token=parse(SECRET, "test"))
    second = await cluster.sequencer(token=parse(SECRET, "test"))
    await first.close()
    assert await second.serving() == 2


@pytest.mark.parametrize(("shown", "admitted"), [(NO_TOKEN, False), (OTHER, False), (TOKEN, True)])
async def test_a_controller_asks_as_well(cluster: Any, shown: ClusterToken, admitted: bool) -> None:
    controller = await Controller(
        metadata=await cluster.store(),
        ledgers=cluster.ledgers,
        rng=cluster.rng,
        policies=(),
        token=TOKEN,
    ).start((await cluster.sequencer()).address._replace(port=0))
    peer = (await cluster.stranger(controller.address)).peer
    hello = peer.call(protocol.OP_HELLO, protocol.encode_hello(token=shown, role=PARTICIPANT))
    if admitted:
        await hello
        assert msgspec.json.decode(await peer.call(protocol.OP_STATUS))["asks_for_token"] is True
    else:
        with pytest.raises(Unauthenticated, match="this controller asks"):
            await hello
    await controller.close()


async def test_the_open_in_the_log_names_the_engine_that_asked(cluster: Any) -> None:
    sequencer = await cluster.serving(token=TOKEN)
    engine = await cluster.participant(sequencer.address, token=TOKEN, role=ENGINE)
    await engine.subscribe(1)
    await engine.open(1, A, 50)
    assert decode((await engine.entries()).payloads[0]).commands == (Open(0, A, 50),)
