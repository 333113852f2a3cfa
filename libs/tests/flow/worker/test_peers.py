"""Who is taken for gone."""

from __future__ import annotations

import pytest

from bokiflow.model.flow_events import Leaving
from bokiflow.worker.peers import Peers
from bokilib.append.log import Log
from libs.tests.flow.conftest import until


async def test_silence_leaving_and_predecessors_are_over_and_namesakes_are_not(log: Log) -> None:
    peers = Peers(log, "g", "a", 15.0)
    peers.since = 5
    peers.claimed("a.1", 5)
    peers.claimed("a.2", 6)
    peers.claimed("a.b.3", 4)
    peers.left(Leaving("g", "c.4"), 3)
    assert [peers.over(name) for name in ("", "a.1", "c.4")] == [True] * 3
    assert [peers.over(name) for name in (peers.name, "a.2", "a.b.3", "d.5")] == [False] * 4
    assert peers.alive() == []


async def test_a_worker_that_is_drained_gets_nothing_and_keeps_what_its_newest_word_says(log: Log) -> None:
    peers = Peers(log, "g", "a", 15.0)
    peers.left(Leaving("g", "b.1", (2, 3)), 7)
    peers.left(Leaving("g", "b.1", (2,)), 9)
    peers.left(Leaving("g", "b.1", (2, 3)), 8)  # read late, in another stream
    assert peers.leaves("b.1") and not peers.over("b.1")
    assert [peers.over("b.1", partition) for partition in (1, 2, 3)] == [True, False, True]
    peers.left(Leaving("g", "b.1"), 10)
    peers.left(Leaving("g", "b.1", (2,)), 9)
    assert peers.over("b.1") and peers.over("b.1", 2) and peers.leaves("b.1")
    peers.left(Leaving("g", peers.name), 11)
    assert not peers.leaves(peers.name) and not peers.over(peers.name, 2), "of itself it knows better"


async def test_with_a_lease_of_no_time_everybody_else_is_dead_and_the_view_is_settled(log: Log) -> None:
    async with Peers(log, "g", "a", 0.0) as peers:
        await until(lambda: peers.over("b.1"))
        assert peers.settled() and not peers.over(peers.name)


async def test_of_those_on_one_log_who_ended_is_over_and_who_runs_is_a_peer(log: Log) -> None:
    async with Peers(log, "g", "a", 15.0) as later:
        async with Peers(log, "g", "a", 15.0) as earlier:
            later.since = 5
            later.claimed(earlier.name, 5)
            assert not later.over(earlier.name) and earlier.name != later.name
        assert later.over(earlier.name)
    names = [Peers(log, "g", None, 15.0).name.rpartition(".")[0] for _ in range(2)]
    assert names[0] != names[1], "without a name nobody is another's successor"


async def test_each_of_two_that_have_one_name_warns_once_of_the_other(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    async with (
        Peers(log, "g", "a", 15.0) as one,
        Peers(log, "g", "a", 15.0) as two,
        Peers(log, "g", "b", 15.0) as three,
    ):
        await until(lambda: {*one.alive()} & {*two.alive()} >= {one.name, two.name, three.name})
        for peers in (one, two, three, one, two):
            peers.warn_of_namesakes()
        said = [line for line in capsys.readouterr().err.split("\n") if "two workers have one name" in line]
        assert [f"worker={one.name} other={two.name}" in said[0], f"worker={two.name} other={one.name}" in said[1]] == [
            True
        ] * 2
        assert len(said) == 2


async def test_a_predecessor_that_is_being_drained_is_no_namesake(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    async with Peers(log, "g", "a", 15.0) as old, Peers(log, "g", "a", 15.0) as new:
        await until(lambda: old.name in new.alive())
        new.left(Leaving("g", old.name, (2,)), 9)
        new.warn_of_namesakes()
        new.left(Leaving("g", old.name), 10)
        new.warn_of_namesakes()
    assert "two workers" not in capsys.readouterr().err
