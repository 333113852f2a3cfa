"""Machines read while hosts run, checkpoint and trim, and beside records that a newer program wrote."""

from __future__ import annotations

from typing import Any

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.errors import Lost, UsageError
from bokilib.append.log import Log
from bokilib.errors import UnknownEvent
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.records.events import Event
from bokirsm import Ref
from bokirsm.lane import loading
from bokirsm.model.events import Checkpoint, Commit, Created, Faulted, Inputs, Message, MessageId, Snapshot
from bokirsm.model.machine_state import MachineState, encode_state
from bokirsm.model.partition_state import PartitionState
from bokirsm_tools.machines import Machine
from bokirsm_tools.reading import (
    NotThere,
    entries,
    group_states,
    groups_named,
    has_group,
    hosts_of,
    life_of,
    load,
    load_all,
    resolve,
    scan,
)
from libs.tests.conftest import SetClock
from libs.tests.rsm.conftest import NewHost, NewRsm
from libs.tests.rsm.words import Max

P3 = tags.rsm_partition("g", 3)
M: Ref[Any] = Ref("g", 3, "m")


class Newer(Event, tag="rsm.newer", frozen=True):
    """An event of a later version."""

    id: str


@pytest.fixture
async def log(cluster: MemoryCluster) -> Log:
    return Log((await cluster.connect()).book("b"))


async def add(log: Log, *events: Event, streams: tuple[str, ...] = (P3,)) -> int:
    return await log.append(Contribution(streams, {}, events))


async def commit(log: Log, k: int, **more: Any) -> int:
    return await add(log, Commit(str(M), k, 1_000 * k, kind="M" if k == 1 else "", state="run", **more))


async def snapshot(log: Log, state: MachineState, name: str = "m", partition: int = 3) -> None:
    one = Snapshot(f"g/{name}", state.k, 0, 1, encode_state(state), state.halted, partition)
    await add(log, one, streams=(tags.rsm_machine("g", name),))


async def checkpoint(log: Log) -> int:
    """Write a checkpoint of partition 3 as of now, and trim what it contains."""
    covers = await log.book.now()
    state = (await loading.load_partitions(log, "g", [3], covers))[3]
    await add(log, Checkpoint("g/3", covers, 0, 1, state.checkpoint(covers)), streams=(tags.rsm_checkpoint("g", 3),))
    await log.book.trim([(P3, covers + 1)])
    return covers


async def machine(log: Log, name: str = "m") -> Machine:
    states = await group_states(log, "g", [3])
    return await load(log, states.states[3], states.position, f"g/3/{name}")


async def test_a_machine_is_its_newest_snapshot_and_the_commits_above_it(log: Log) -> None:
    first = await add(log, Inputs("g", (Message(str(M), "E"), Message(str(M), "F"))))
    await commit(log, 1, took=(MessageId(first, 0),), registers={"a": b"\x01"})
    await snapshot(log, (await machine(log)).state or MachineState(""))
    await checkpoint(log)
    found = await machine(log)
    assert found.state is not None and (found.state.k, [one.event for _, one in found.waits]) == (1, ["F"])
    await commit(log, 2, registers={"b": b"\x02"})
    found = await machine(log)
    assert found.state is not None and found.state.registers == {"a": b"\x01", "b": b"\x02"}
    life = await life_of(log, M)
    assert life.newest is not None and life.newest[0] == await log.book.now() and life.fault_ms == 0


async def test_what_is_trimmed_while_it_is_read_is_read_again(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    await commit(log, 1, registers={"a": b"\x01"})
    await add(log, Inputs("g", (Message(str(M), "E"),)))
    begun = loading.read_on
    trims = [1]

    async def trimmed_before(opened: Log, *arguments: Any) -> None:
        if trims:
            trims.clear()
            monkeypatch.setattr(loading, "read_on", begun)
            await snapshot(log, MachineState("M", 1, 1_000, "run", registers={"a": b"\x01"}))
            await checkpoint(log)
        await begun(opened, *arguments)

    monkeypatch.setattr(loading, "read_on", trimmed_before)
    states = await group_states(log, "g")
    assert not states.unreadable and not trims and states.has_trimmed
    assert [one.event for one in states.states[3].pending.values()] == ["E"]


async def test_a_machine_whose_commits_were_trimmed_meanwhile_is_read_anew(log: Log) -> None:
    await commit(log, 1)
    await snapshot(log, MachineState("M", 1, 1_000, "run"))
    await checkpoint(log)
    await commit(log, 2)
    old = await group_states(log, "g", [3])
    await snapshot(log, MachineState("M", 2, 2_000, "run"))
    await checkpoint(log)
    await commit(log, 3)
    await log.book.trim([(tags.rsm_machine("g", "m"), await log.book.now())])
    await snapshot(log, MachineState("M", 3, 3_000, "run"))
    found = await load(log, old.states[3], old.position, str(M))
    assert found.state is not None and found.state.k == 3


async def test_a_snapshot_that_is_newer_than_its_partition_has_the_partition_read_again(log: Log) -> None:
    first = await add(log, Inputs("g", (Message(str(M), "E"),)))
    await commit(log, 1)
    await snapshot(log, MachineState("M", 1, 1_000, "run"))
    await checkpoint(log)
    old = await group_states(log, "g", [3])
    await commit(log, 2, took=(MessageId(first, 0),))
    await snapshot(log, MachineState("M", 2, 2_000, "run"))
    assert len(old.states[3].pending) == 1
    found = await load(log, old.states[3], old.position, str(M))
    assert found.state is not None and (found.state.k, found.waits) == (2, ()), "the snapshot has what took the event"


async def test_a_hole_in_the_commits_of_a_machine_is_no_machine_less(log: Log) -> None:
    await commit(log, 2)
    with pytest.raises(Lost, match="has not all of machine g/3/m: g/3/m: expected commit 1 or a snapshot"):
        await machine(log)
    found = await load_all(log, await group_states(log, "g"), [str(M), "g/3/other"])
    assert isinstance(found[0], Lost) and isinstance(found[1], Machine)


async def test_a_snapshot_that_is_replaced_while_it_is_read_is_read_again(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    await snapshot(log, MachineState("M", 1, 1_000, "run"))
    begun = loading.load_snapshot

    async def replaced(opened: Log, group: str, name: str) -> MachineState | None:
        monkeypatch.setattr(loading, "load_snapshot", begun)
        await snapshot(log, MachineState("M", 2, 2_000, "run"))
        return None

    monkeypatch.setattr(loading, "load_snapshot", replaced)
    found = await load(log, PartitionState("g", 3), await log.book.now() + 1, str(M))
    assert found.state is not None and found.state.k == 2


async def test_what_a_newer_program_wrote_hides_no_other_partition(log: Log) -> None:
    await commit(log, 1)
    await add(log, Newer("g/4/n"), streams=(tags.rsm_partition("g", 4),))
    states = await group_states(log, "g")
    assert list(states.unreadable) == [4] and "rsm.newer" in str(states.unreadable[4]) and str(M) in states.refs
    found = await load_all(log, states, [str(M), "g/4/n"])
    assert isinstance(found[0], Machine) and isinstance(found[1], UnknownEvent)
    with pytest.raises(UnknownEvent, match="upgrade it"):
        await life_of(log, Ref("g", 4, "n"))
    assert await resolve(log, "b", None, "m") == M
    with pytest.raises(UnknownEvent):
        await resolve(log, "b", None, "n")


async def test_the_apps_and_snapshots_of_a_book_are_found_among_other_records(log: Log) -> None:
    await add(log, Inputs("g", ()))
    await snapshot(log, MachineState("M", 1), "idle", 7)
    await add(log, Created("h/keyed", Message("h/9/keyed", kind="M")), streams=(tags.rsm_machine("h", "keyed"),))
    await log.book.submit(b"of another program", tags=["rsm/p", "x", 7])
    await add(log, Newer("g/x"), streams=(tags.rsm_machine("g", "x"),))
    counted: list[int] = []
    found = await scan(log, counted.append)
    assert found.groups == ["g", "h"] and found.refs == {"g": {"g/7/idle"}, "h": {"h/9/keyed"}}
    assert len(found.unreadable) == 1 and counted == [1, 2, 3, 4, 5]
    assert await groups_named(log, None) == ["g", "h"] and await groups_named(log, "no") == []
    assert await has_group(log, "g") and not await has_group(log, "i")


async def test_a_machine_is_named_by_its_reference_or_by_its_name(log: Log) -> None:
    await add(log, Inputs("g", (Message("g/3/cart/7/x", "E"), Message("g/5/twice", "E"))))
    await add(log, Inputs("h", (Message("h/5/twice", "E"),)), streams=(tags.rsm_partition("h", 5),))
    await add(log, Inputs("g", (Message("g/5/twice", "E"),)), streams=(tags.rsm_partition("g", 5),))
    await snapshot(log, MachineState("M", 1), "idle", 7)
    named = {text: str(await resolve(log, "b", "g", text)) for text in ("g/3/any", "cart/7/x", "twice", "idle")}
    assert named == {"g/3/any": "g/3/any", "cart/7/x": "g/3/cart/7/x", "twice": "g/5/twice", "idle": "g/7/idle"}
    with pytest.raises(UsageError, match=r"several named 'twice': name one of g/5/twice, h/5/twice"):
        await resolve(log, "b", None, "twice")
    for group, text, words in (
        ("g", "no", "there is no machine 'no' in the app 'g' of the book 'b'; `boki rsm ls --book b` lists"),
        (None, "h/5", "there is no machine 'h/5' in the book 'b'"),
        ("i", "no", "there is no app 'i' in the book 'b'"),
    ):
        with pytest.raises(NotThere, match=words):
            await resolve(log, "b", group, text)
    with pytest.raises(NotThere, match="there is no machine 'g/3/any'"):
        await life_of(log, Ref("g", 3, "any"))


async def test_a_timeline_says_which_records_are_missing(log: Log) -> None:
    await commit(log, 1)
    await snapshot(log, MachineState("M", 1, 1_000, "run"))
    covers = await checkpoint(log)
    await add(log, Newer(str(M)))
    await commit(log, 2, took=(MessageId(1, 0),))
    found = [one async for one in entries(log, M)]
    assert [one.kind for one in found] == ["missing", "unreadable", "takes", "enters"]
    assert found[0].facts["last"] <= covers and not found[0].facts["lost"]
    assert [one.kind async for one in entries(log, M, stop=covers + 2)] == ["missing"]


async def test_a_fault_is_shown_with_its_stack_as_long_as_its_record_is_kept(log: Log, clock: SetClock) -> None:
    first = await add(log, Inputs("g", (Message(str(M), "E", kind="M"),)))
    clock.ms += 5_000
    await add(log, Faulted(str(M), MessageId(first, 0), "", "E", "ValueError: no", "the stack"))
    life = await life_of(log, M)
    assert (life.machine.status, life.machine.kind, life.stack, life.fault_ms) == (
        "faulted",
        "M",
        "the stack",
        clock.ms,
    )
    await checkpoint(log)
    life = await life_of(log, M)
    assert (life.machine.status, life.stack, life.fault_ms) == ("faulted", "", 0)


async def test_hosts_are_seen_by_their_heartbeats_and_claims(new_host: NewHost, clock: SetClock) -> None:
    host, other = await new_host(name="a"), await new_host(name="b")
    book = host.rsm.log.book
    log = Log(book)
    async with host:
        found = await hosts_of(log, "words", clock.ms)
        assert found.living == [host.name] and found.text(7) == "" and len(found.owners) == tags.PARTITIONS
        assert found.facts(7)["since_ms"] == clock.ms and found.seen[host.name].lease_ms == 15_000
        assert (await hosts_of(log, "words", clock.ms + 60_000)).alone.startswith("no living host: a.")
        await host.create(Max, key="m")
    found = await hosts_of(log, "words", clock.ms)
    assert found.living == [] and found.alone.endswith("and has left"), "it released its partitions"
    async with other:
        found = await hosts_of(log, "words", clock.ms)
        assert found.living == [other.name] and host.name in found.left


async def test_claims_of_a_newer_program_leave_the_hosts_unknown(log: Log) -> None:
    await add(log, Newer("g/3"), streams=(tags.rsm_owner("g", 3),))
    found = await hosts_of(log, "g", 0)
    assert "rsm.newer" in found.problem and found.owners == {}


async def test_a_machine_is_read_while_hosts_run(new_host: NewHost, new_rsm: NewRsm) -> None:
    rsm = await new_rsm()
    top = await rsm.create(Max, key="max")
    async with await new_host() as host:
        await host.lane.settled()
        states = await group_states(rsm.log, "words")
        assert str(top) in states.refs and not states.unreadable
        assert isinstance(rsm.log.book, boki.Book) and (await life_of(rsm.log, top)).machine.kind == "Max"
