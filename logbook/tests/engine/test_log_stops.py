"""A metalog entry that an engine cannot apply: that log stops before it, and says so; the engine, and its other logs, go on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from boki_common.engine.engine_protocol import Consistency
from boki_common.engine.engine_waits import waits_of
from boki_common.ids import Position
from boki_logbook.engine_status import faults_of, status_of
from boki_logbook.settings import EngineSettings
from boki_logbook.testing.cluster import RunSpec, committed, data_of, plain_records, query, read, same_state
from boki_logbook.testing.engines import EngineCluster
from boki_metalog.entries.metalog_entry import Close, MetalogEntry, ShardEnd, encode
from boki_metalog.follow.follower import EntryRefused
from boki_metalog.sequencer import term_server

ALICE = bytes(15) + b"a"
SETTINGS = EngineSettings(retry_first_s=0.005, retry_limit_s=0.01, housekeeping_s=0.05)


def cannot_follow(entry: MetalogEntry) -> bytes:
    """An entry that is one, and begins where none ended."""
    return encode(MetalogEntry(entry.start_pos + 7, entry.end_pos + 7, entry.time_ms, entry.shards))


def closes_what_is_not_open(entry: MetalogEntry) -> bytes:
    return encode(MetalogEntry(entry.start_pos, entry.end_pos, entry.time_ms, entry.shards, (Close(77),)))


async def appended(engine: Any, number: int) -> None:
    await committed(engine.core, RunSpec(1, ALICE, number, plain_records(str(number))))


@pytest.mark.parametrize(
    "spoil",
    [lambda entry: b"garbage", lambda entry: b"", cannot_follow, closes_what_is_not_open],
    ids=["no entry", "empty", "another position", "another shard"],
)
async def test_a_metalog_entry_that_no_copy_has_right_stops_the_log_and_ends_no_engine(
    engines: EngineCluster, monkeypatch: pytest.MonkeyPatch, spoil: Any
) -> None:
    """Its sequencer wrote it so: all bookies have it, with the digest right."""
    one, two = await engines.start_engine(SETTINGS), await engines.start_engine(SETTINGS)
    await appended(one, 1)
    await engines.until(lambda: same_state(one.core, two.core))
    stops_at = one.core.positions[0]

    def encode_badly(entry: MetalogEntry) -> bytes:
        monkeypatch.setattr(term_server, "encode", encode)
        return bytes(spoil(entry))

    monkeypatch.setattr(term_server, "encode", encode_badly)
    lost = asyncio.ensure_future(appended(one, 2))
    await engines.until(lambda: one.core.logs[0].stop and two.core.logs[0].stop)
    late = await engines.make_engine(SETTINGS)
    await engines.until(lambda: late.core.logs and late.core.logs[0].stop)
    for engine in (one, two, late):
        assert not engine.failed.done()
        stop = engine.core.logs[0].stop
        assert stop is not None and stop.at == stops_at == engine.core.positions[0]
        (fault,) = engine.faults()
        assert fault.startswith(f"log 0 stops at entry {stops_at.entry} of the metalog of term 1: ")
        assert engine.status()["faults"] == [fault]
        assert any("stops at entry" in wait.message for wait in waits_of("e", engine.status()))
        asked = query(consistency=Consistency.ANY)
        assert data_of(await read(engine.core, asked)) == [b"1"], "what comes before is served"
    lost.cancel()


async def test_an_entry_that_was_pushed_badly_is_read_from_bookies_and_nothing_is_lost(
    engines: EngineCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await engines.start_engine(SETTINGS)
    await appended(one, 1)
    push = term_server.TermServer._push
    pushed: list[bytes] = []

    def push_badly(server: Any, first: int, data: bytes) -> None:
        pushed.append(data)
        push(server, first, b"garbage" if len(pushed) == 1 else data)

    monkeypatch.setattr(term_server.TermServer, "_push", push_badly)
    await appended(one, 2)
    assert data_of(await read(one.core, query())) == [b"1", b"2"]
    assert one.faults() == [] and one.core.logs[0].stop is None


async def test_an_engine_refuses_an_entry_before_it_notes_any_of_it(cluster: Any, core: Any) -> None:
    part, position = core.logs[0], core.positions[0]
    following = MetalogEntry(0, 0, cluster.log.time_ms, (ShardEnd(0, 0, 0),))
    wrong = MetalogEntry(0, 0, cluster.log.time_ms, (ShardEnd(0, 0, 0),), (Close(5),))
    with pytest.raises(EntryRefused) as caught:
        part.entries_ordered(1, position.entry, [following, wrong, following])
    assert caught.value.entry == position.entry + 1
    assert core.positions[0] == Position(1, position.entry + 1)
    part.entries_ordered(1, position.entry + 1, [following])
    assert core.positions[0] == Position(1, position.entry + 2)


async def test_the_status_says_where_a_log_stops_until_it_goes_on(core: Any) -> None:
    core.logs[0].stopped(Position(1, 9), ValueError("why"))
    assert status_of(core)["logs"][0]["stopped"] == {"term": 1, "entry": 9, "error": "why"}
    assert core.needing_snapshot() == {0: core.positions[0]}
    core.logs[0].stopped(Position(1, 9), None)
    assert status_of(core)["logs"][0]["stopped"] is None and faults_of(core) == [] and not core.needing_snapshot()
