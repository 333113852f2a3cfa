"""A term whose last metalog entry nobody can read: it gets no next one by itself, nothing else suffers, and a person may end it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from boki_common.errors import InvalidArgument
from boki_common.ids import Position
from boki_metalog.control.log_changes import LogChanges, ensure_logs
from boki_metalog.entries.metalog_entry import MetalogEntry, ShardEnd, decode, encode
from boki_metalog.errors import MetalogUnreadable
from boki_metalog.terms.metadata_tree import read_record, read_view
from boki_metalog.terms.term_end import Decision

A = "aa" * 16
WHY = Decision(3, "a broken machine, ticket 17", 1_234)


async def changes(cluster: Any) -> LogChanges:
    return LogChanges(
        await cluster.store(), cluster.ledgers, cluster.rng, retry_first_s=0.005, retry_limit_s=0.02, retry_for_s=30.0
    )


async def term_of(cluster: Any, log: int = 0) -> int:
    return (await read_view(await cluster.store())).view.term_of(log)


async def filled(cluster: Any, entries: int = 4) -> Any:
    """A sequencer with so many entries in its metalog, which ends with an entry that nobody can read."""
    sequencer = await cluster.sequencer(log=0, over_grace_s=0.0)
    engine, link = await cluster.linked(1)
    shard = await link.open_shard(A, 50)
    for number in range(1, entries):
        link.report(shard, number, number)
        await engine.seen.until(lambda: engine.seen.vector.end_pos == number)  # noqa: B023 - awaited at once
    await engine.stop()
    ledger = cluster.ledgers.ledgers[sequencer.term_server._writer.ledger_id]
    ledger.entries[-1] = b"garbage"
    sequencer.term_server.recent._entries[-1] = b"garbage"
    return sequencer, ledger


async def test_a_standby_that_cannot_end_a_term_lives_and_takes_other_logs(cluster: Any) -> None:
    await ensure_logs(await cluster.store(), 2)
    lost, ledger = await filled(cluster)
    await lost.close()
    standby = await cluster.sequencer()
    while await term_of(cluster, 1) == 0:
        assert not standby.failed.done()
        await asyncio.sleep(0)
    other = await cluster.sequencer()
    while not ledger.closed:
        await asyncio.sleep(0)
    for _ in range(200):
        await asyncio.sleep(0)
    assert not standby.failed.done() and not other.failed.done() and await term_of(cluster) == 1


async def test_its_end_is_reported_with_the_ways_out_and_it_goes_on_when_it_is_mended(cluster: Any) -> None:
    sequencer, ledger = await filled(cluster)
    standby = await cluster.sequencer(over_grace_s=0.0)
    admin = await changes(cluster)
    with pytest.raises(MetalogUnreadable, match=r"entry 3.*boki log give-up 1 3"):
        await admin.roll(0)
    assert await term_of(cluster) == 1 and ledger.closed
    late = await cluster.stopped()
    assert (late.seen.count(1), late.follower.position) == (3, Position(1, 3)), "what comes before is served"
    good = late.seen.entries[1][-1]
    ledger.entries[-1] = mended(good)
    while await term_of(cluster) == 1:
        await asyncio.sleep(0)
    await late.seen.linked(2)
    assert late.seen.count(1) == 4 and not standby.failed.done()
    await sequencer.close()


def mended(before: MetalogEntry) -> bytes:
    end = before.end_pos + 1
    return encode(MetalogEntry(before.end_pos, end, before.time_ms, (ShardEnd(0, end, end),)))


@pytest.mark.parametrize("in_the_middle", [False, True])
async def test_a_person_may_end_it_before_that_entry_once_for_all(cluster: Any, in_the_middle: bool) -> None:
    """Who stopped there goes on in the next term, and so does who comes later; the record keeps what was given up, and why."""
    sequencer, ledger = await filled(cluster, 6 if in_the_middle else 4)
    if in_the_middle:
        ledger.entries[3] = b"garbage"
        sequencer.term_server.recent._entries[3] = b"garbage"
    stopped = await cluster.stopped()
    admin = await changes(cluster)
    with pytest.raises(InvalidArgument, match="entry 3 is the first"):
        await admin.give_up(0, 1, WHY._replace(entry=2))
    assert await term_of(cluster) == 1
    for _ in range(2):  # it may be repeated
        await admin.give_up(0, 1, WHY)
    late = await cluster.follow()
    for one in (stopped, late):
        await one.seen.linked(2)
        assert one.seen.count(1) == 3 and "ended 1" in one.seen.events
        assert not one.seen.stops or one.seen.stops[-1][1] is None
    record = await read_record(await cluster.store(), 1)
    assert (record.last_entry, record.end_pos, record.closed_at) == (2, 2, 5 if in_the_middle else 3)
    assert record.given_up is not None and record.given_up.reason == WHY.reason
    assert (record.given_up.first_entry, record.given_up.time_ms) == (3, 1_234)
    link = late.seen.link
    shard = await link.open_shard(A, 51)
    link.report(shard, 7, 2)
    await stopped.seen.until(lambda: stopped.seen.vector.end_pos == 7)


async def test_who_has_applied_what_was_given_up_stops_and_says_so(cluster: Any) -> None:
    await filled(cluster)
    await (await changes(cluster)).give_up(0, 1, WHY)
    ahead = await cluster.stopped(start=Position(1, 4))
    assert "do not go on" in ahead.seen.stops[0][1] and "ticket 17" in ahead.seen.stops[0][1]
    assert "ended 1" not in ahead.seen.events


async def test_of_a_term_that_is_over_nothing_is_given_up(cluster: Any) -> None:
    """Engines that could read it went on from there, and do not look at its record again."""
    sequencer, ledger = await filled(cluster, 6)
    ledger.entries[-1] = mended_of(ledger.entries[-2])
    ledger.entries[3] = b"garbage"
    admin = await changes(cluster)
    await admin.roll(0)
    with pytest.raises(InvalidArgument, match="its record says for ever"):
        await admin.give_up(0, 1, WHY)
    assert (await read_record(await cluster.store(), 1)).given_up is None
    await sequencer.close()


def mended_of(before: bytes) -> bytes:
    return mended(decode(before))


async def test_two_that_decide_at_once_end_in_one_record(cluster: Any) -> None:
    await filled(cluster)
    await cluster.sequencer()
    one, other = await changes(cluster), await changes(cluster)
    outcomes = await asyncio.gather(
        one.give_up(0, 1, WHY),
        other.give_up(0, 1, WHY._replace(reason="another", time_ms=9)),
        return_exceptions=True,
    )
    assert any(not isinstance(one, BaseException) for one in outcomes), outcomes
    record = await read_record(await cluster.store(), 1)
    assert record.given_up is not None and record.given_up.first_entry == 3
