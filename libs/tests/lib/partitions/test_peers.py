"""Members that are taken for alive, leaving, or gone."""

from __future__ import annotations

import pytest

import boki
from bokilib.append.log import Log
from bokilib.partitions.peers import Peers
from libs.tests.lib.conftest import until


@pytest.fixture
def log(book: boki.Book) -> Log:
    return Log(book)


async def test_silent_leaving_and_earlier_members_are_gone_and_namesakes_are_not(log: Log) -> None:
    peers = Peers(log, "g", "a", 15.0)
    peers.since = 5
    peers.saw_claim("a.1", 5)
    peers.saw_claim("a.2", 6)
    peers.saw_claim("a.b.3", 4)
    peers.saw_leaving("c.4", 3)
    assert [peers.is_gone(name) for name in ("", "a.1", "c.4")] == [True] * 3
    assert [peers.is_gone(name) for name in (peers.name, "a.2", "a.b.3", "d.5")] == [False] * 4
    assert peers.alive() == []


async def test_a_leaving_member_gets_nothing_and_keeps_what_its_newest_record_names(log: Log) -> None:
    peers = Peers(log, "g", "a", 15.0)
    peers.saw_leaving("b.1", 7, ["x", "y"].__contains__)
    assert [peers.is_gone("b.1", work) for work in "xyz"] == [False, False, True]
    peers.saw_leaving("b.1", 9, ["x"].__contains__)
    peers.saw_leaving("b.1", 8, ["x", "y"].__contains__)  # read late, in another stream
    assert peers.is_leaving("b.1") and not peers.is_gone("b.1")
    assert [peers.is_gone("b.1", work) for work in "xyz"] == [False, True, True]
    peers.saw_leaving("b.1", 10)
    peers.saw_leaving("b.1", 9, ["x"].__contains__)
    assert peers.is_gone("b.1") and peers.is_gone("b.1", "x") and peers.is_leaving("b.1")
    peers.saw_leaving(peers.name, 11)
    assert not peers.is_leaving(peers.name) and not peers.is_gone(peers.name, "x"), "of itself it knows better"


async def test_a_member_is_lost_unless_it_said_that_it_leaves_or_was_closed_here(log: Log) -> None:
    peers = Peers(log, "g", "a", 15.0)
    async with Peers(log, "g", "b", 15.0) as closed:
        assert peers.was_lost(closed.name)
    peers.saw_leaving("c.4", 3)
    assert [peers.was_lost(name) for name in (closed.name, "c.4", "d.5")] == [False, False, True]


async def test_with_a_lease_of_no_time_all_other_members_are_dead_and_the_view_is_settled(log: Log) -> None:
    async with Peers(log, "g", "a", 0.0) as peers:
        await until(lambda: peers.is_gone("b.1"))
        assert peers.settled() and not peers.is_gone(peers.name)


async def test_members_of_one_log_that_ended_are_gone_and_running_ones_are_not(log: Log) -> None:
    async with Peers(log, "g", "a", 15.0) as later:
        async with Peers(log, "g", "a", 15.0) as earlier:
            later.since = 5
            later.saw_claim(earlier.name, 5)
            assert not later.is_gone(earlier.name) and earlier.name != later.name
        assert later.is_gone(earlier.name)
    names = [Peers(log, "g", None, 15.0).name.rpartition(".")[0] for _ in range(2)]
    assert names[0] != names[1], "a member without a name has no predecessor"


async def test_each_of_two_members_of_one_name_returns_the_other_once(log: Log) -> None:
    async with (
        Peers(log, "g", "a", 15.0) as one,
        Peers(log, "g", "a", 15.0) as two,
        Peers(log, "g", "b", 15.0) as three,
    ):
        await until(lambda: {*one.alive()} & {*two.alive()} >= {one.name, two.name, three.name})
        found = [peers.new_namesakes() for peers in (one, two, three, one, two)]
        assert found == [[two.name], [one.name], [], [], []]


async def test_a_predecessor_that_is_leaving_is_no_namesake(log: Log) -> None:
    async with Peers(log, "g", "a", 15.0) as old, Peers(log, "g", "a", 15.0) as new:
        await until(lambda: old.name in new.alive())
        new.saw_leaving(old.name, 9, lambda work: True)
        assert new.new_namesakes() == []
        new.saw_leaving(old.name, 10)
        assert new.new_namesakes() == []
