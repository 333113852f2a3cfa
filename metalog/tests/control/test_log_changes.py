"""Roll, move, spread, add, remove: with living sequencers, and without enough of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from boki_common.errors import InvalidArgument, NoSequencer
from boki_metalog.control import log_changes
from boki_metalog.control.log_changes import LogChanges, ensure_logs
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.terms.metadata_tree import read_record, read_view


async def changes(cluster: Any, retry_for_s: float = 10.0, *, asking: bool = True) -> LogChanges:
    return LogChanges(
        await cluster.store(),
        cluster.ledgers,
        cluster.rng,
        retry_for_s=retry_for_s,
        retry_first_s=0.005,
        retry_limit_s=0.02,
        asking=asking,
    )


async def serving(sequencers: list[Any], logs: int) -> dict[int, Any]:
    while True:
        found = {one.log: one for one in sequencers if one.term}
        if len(found) == logs:
            return found
        await asyncio.sleep(0)


async def test_a_roll_keeps_the_sequencer(cluster: Any) -> None:
    first, second = await cluster.sequencer(), await cluster.sequencer()
    by_log = await serving([first, second], 1)
    admin = await changes(cluster)
    for term in (2, 3):
        view, _ = await admin.roll(0)
        assert view.term_of(0) == term and view.installed(0).sequencer == by_log[0].incarnation  # type: ignore[union-attr]
    await cluster.until(lambda: by_log[0].term == 3)
    assert (await admin.roll(0, suspect=2)).view.term_of(0) == 3, "somebody did it already"
    with pytest.raises(InvalidArgument, match="logs"):
        await admin.roll(5)


@pytest.mark.parametrize("asking", [True, False])
async def test_the_metalog_of_a_planned_change_is_closed_by_its_writer_if_that_is_asked(
    cluster: Any, asking: bool
) -> None:
    sequencer = await cluster.serving()
    metalog = cluster.metalog(sequencer)
    await (await changes(cluster, asking=asking)).roll(0)
    assert metalog.closed and metalog.closed_by_writer == asking


async def test_a_sequencer_that_cannot_end_its_term_in_time_is_fenced(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_changes, "YIELD_TIMEOUT_S", 0.01)
    sequencer, engine = await cluster.served()
    metalog = cluster.hold(sequencer)
    engine.peer.request(protocol.OP_OPEN, protocol.encode_open(1, "aa" * 16, 50))
    await engine.round_trip()
    view, _ = await (await changes(cluster)).roll(0)
    assert view.term_of(0) == 2 and metalog.closed and not metalog.closed_by_writer


async def test_a_log_comes_and_goes(cluster: Any) -> None:
    sequencers = [await cluster.sequencer() for _ in range(2)]
    await serving(sequencers, 1)
    admin = await changes(cluster)
    assert await admin.add() == 1
    await serving(sequencers, 2)
    await admin.spread({0: 1, 1: 1})
    view = await cluster.view()
    assert view.slots_of(1) == ((512, 1023),)
    async with asyncio.timeout(10):
        while {one.log: one.term for one in sequencers} != {log: view.term_of(log) for log in (0, 1)}:
            await asyncio.sleep(0)  # the change is done when the view has it; its sequencers hear of it after
    await admin.move(range(600), to=1)
    assert (await cluster.view()).slots_of(0) == ()
    before = (await cluster.view()).term_of(0)
    await admin.remove(0)
    view = await cluster.view()
    assert sorted(view.logs) == [1] and (await read_record(await cluster.store(), before)).log == 0
    assert (await admin.remove(0)).view == view, "it is gone already"
    with pytest.raises(InvalidArgument, match="only one"):
        await admin.remove(1)
    assert await admin.add() == 0, "the lowest free number"


async def test_without_a_free_sequencer_nothing_is_sealed(cluster: Any, sequencer: Any) -> None:
    admin = await changes(cluster, retry_for_s=0.05)
    with pytest.raises(NoSequencer, match=r"log 7 is listed, without slots; .*boki sequencer"):
        await admin.add(7)
    assert sequencer.term == 1 and (await cluster.view()).logs[7] is None
    second = await cluster.serving()
    assert second.log == 7, "the next one that stands by takes it"


async def test_a_listed_sequencer_that_does_not_answer_is_no_candidate(cluster: Any) -> None:
    first, second = await cluster.sequencer(standby_check_s=60.0), await cluster.sequencer(standby_check_s=60.0)
    by_log = await serving([first, second], 1)
    standby = second if by_log[0] is first else first
    await standby._process._server.close()
    admin = await changes(cluster)
    with pytest.raises(NoSequencer):
        await admin._choose((await cluster.view()).with_logs([1]), (1,))


async def test_numbers_of_logs_are_bounded(cluster: Any) -> None:
    admin = await changes(cluster, retry_for_s=0.05)
    with pytest.raises(InvalidArgument, match="255"):
        await admin.add(256)


async def test_logs_of_a_new_cluster_share_the_slots_at_once(cluster: Any) -> None:
    store = await cluster.store()
    found = await asyncio.gather(*(ensure_logs(store, 2) for _ in range(3)))
    assert sorted(found) == [(), (), (1,)]
    view = (await read_view(store)).view
    assert view.slots_of(1) == ((512, 1023),) and view.next_term == 1
    await (await cluster.sequencer()).serving()
    assert await ensure_logs(store, 3) == (2,)
    assert (await cluster.view()).slots_of(2) == ()
