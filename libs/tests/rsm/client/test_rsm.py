"""Machines from outside: keys, deduplication, parts of records, questions without an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

import pytest

from boki.testing import MemoryCluster
from boki_common.errors import Conflict, InvalidArgument
from bokilib import Atomic
from bokilib.errors import AppendUnknown, AtomicTooLarge, NotEncodable
from bokirsm import AnswerTimeout, App, Event, IdReused, Machine, Ref, State, WrongCall
from bokirsm.machine.values import Question, canonical, digest_of, digest_of_first
from libs.tests.conftest import SetClock
from libs.tests.rsm.conftest import NewHost, NewRsm
from libs.tests.rsm.words import Best, Counter, Freq, Init, Max, Word

TOP: Ref[Freq | Best] = Ref("words", 1, "top")


async def test_a_key_is_one_machine(new_rsm: NewRsm) -> None:
    rsm, other = await new_rsm(), await new_rsm()
    made = await rsm.create(Counter, Init(TOP), key="c")
    assert await other.create(Counter, Init(TOP), key="c") == made
    assert await other.create(Counter, Init(TOP), key="c", near=TOP) == made, "where it was created first"
    near = await rsm.create(Counter, Init(TOP), key="d", near=TOP)
    assert near.partition == TOP.partition and await rsm.create(Max) != await rsm.create(Max)
    with pytest.raises(IdReused, match="take another key") as reused:
        await other.create(Counter, Init(made), key="c")  # type: ignore[arg-type]
    assert reused.value.facts["key"] == "c"
    with pytest.raises(IdReused, match="found a machine of Counter"):
        await other.create(Max, key="c")
    with pytest.raises(InvalidArgument, match="none of them '#'"):
        await rsm.create(Max, key="a#1")


class Old(Event, name="Begin"):
    target: str
    tries: int = 3


class New(Event, name="Begin"):
    target: str
    tries: int = 3
    rate: float = 0


class OldJob(Machine[Old], name="Job"):
    run = State(start=True, ignore=(Event,))


class NewJob(Machine[New], name="Job"):
    run = State(start=True, ignore=(Event,))


def of_all_fields(kind: str, first: Event | None) -> str:
    return digest_of(kind, "Begin", canonical(first))


@pytest.mark.parametrize("noted", [digest_of_first, of_all_fields])
async def test_a_key_is_one_machine_after_a_deploy_that_adds_a_field(
    new_rsm: NewRsm, noted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The field has a default. An earlier release noted a digest of all fields."""
    old, new = await new_rsm(App("jobs", [OldJob])), await new_rsm(App("jobs", [NewJob]))
    with monkeypatch.context() as patch:
        patch.setattr("bokirsm.client.rsm.digest_of_first", noted)
        job: Ref[Any] = await old.create(OldJob, Old("x"), key="j")
    assert await new.create(NewJob, New("x"), key="j") == job == await new.create(NewJob, New("x", 3, 0.0), key="j")
    for other in (New("x", 4), New("x", rate=0.5), New("y")):
        with pytest.raises(IdReused, match="take another key"):
            await new.create(NewJob, other, key="j")
    job = await new.create(NewJob, New("x", rate=1), key="k")
    assert await new.create(NewJob, New("x", rate=1.0), key="k") == job
    with pytest.raises(IdReused):
        await old.create(OldJob, Old("x"), key="k")
    job = await new.create(NewJob, New("x"), key="l")
    assert await old.create(OldJob, Old("x"), key="l") == job, "while the deploy rolls, both ways"


async def test_creations_from_two_processes_are_one_machine(new_rsm: NewRsm) -> None:
    processes = [await new_rsm() for _ in range(8)]
    found = await asyncio.gather(*(one.create(Counter, Init(TOP), key="c") for one in processes))
    assert len(set(found)) == 1


async def test_a_lost_answer_of_a_keyed_creation_is_asked_for_again(new_rsm: NewRsm, cluster: MemoryCluster) -> None:
    rsm = await new_rsm()
    creating = asyncio.create_task(rsm.create(Max, key="m"))
    await asyncio.sleep(0)
    cluster.disconnect()
    try:
        made = await creating
    except AppendUnknown:
        made = await rsm.create(Max, key="m")
    assert made.name == "m"


async def test_events_with_one_deduplication_id_are_one(new_host: NewHost, clock: SetClock) -> None:
    async with await new_host(name="h") as host:
        top = await host.create(Max)
        counter = await host.create(Counter, Init(top))
        for _ in range(3):
            await host.send(counter, Word("a"), dedup_id="x")
        assert await host.ask(Word("a").to(counter)) == 2
        clock.ms += 301_000
        await host.send(counter, Word("a"), dedup_id="x")
        assert await host.ask(Word("a").to(counter)) == 4, "the window has passed"
    async with await new_host(name="i") as host:
        await host.send(counter, Word("a"), dedup_id="x")
        assert await host.ask(Word("a").to(counter)) == 5, "another owner knows the id"


async def test_parts_of_records_take_effect_together(new_host: NewHost) -> None:
    async with await new_host(name="h") as host:
        rsm = host.rsm
        part, top = rsm.creating(Max, Freq("a", 5), key="max")
        async with Atomic(rsm.log) as tx:
            tx.add(part)
            tx.add(rsm.sending(top, Freq("b", 7)))
        assert await host.ask(Best().to(top)) == "b 7"
        part, _ = rsm.creating(Max, key="max")
        with pytest.raises(Conflict):
            async with Atomic(rsm.log) as tx:
                tx.add(part)
                tx.add(rsm.sending(top, Freq("c", 9)))
        assert await host.ask(Best().to(top)) == "b 7"


async def test_wrong_calls_say_what_is_expected(new_rsm: NewRsm) -> None:
    rsm = await new_rsm()
    foreign: Ref[Freq] = Ref("others", 1, "x")
    wrong: Any = Word("a")
    wrong_ref: Ref[Any] = TOP
    calls: list[tuple[Callable[[], Awaitable[object]], type[Exception], str]] = [
        (partial(rsm.send, foreign, Freq("a", 1)), InvalidArgument, "use an Rsm of its app"),
        (partial(rsm.send, wrong_ref, "text"), WrongCall, "expected an event"),
        (partial(rsm.send_many, []), InvalidArgument, "found none"),
        (partial(rsm.send, TOP, Freq("a", 1), dedup_id=""), InvalidArgument, "a dedup_id of 1"),
        (partial(rsm.send, TOP, Freq("a", 1), dedup_id="\ud800"), InvalidArgument, "a dedup_id of 1"),
        (partial(rsm.send, TOP, Freq("a", 1), dedup_id=cast(Any, 5)), InvalidArgument, "a dedup_id of 1"),
        (partial(rsm.send, cast(Any, "top"), Freq("a", 1)), InvalidArgument, "Ref.parse"),
        (partial(rsm.send, Ref("words", 1, "\ud800"), Freq("a", 1)), InvalidArgument, "UTF-8"),
        (partial(rsm.send, Ref("words", 5_000, "top"), Freq("a", 1)), InvalidArgument, "a partition from 0"),
        (partial(rsm.send, Ref("words", cast(Any, None), "top"), Freq("a", 1)), InvalidArgument, "a partition from 0"),
        (partial(rsm.send_many, cast(Any, [TOP])), InvalidArgument, "expected pairs"),
        (partial(rsm.send_many, cast(Any, 5)), InvalidArgument, "expected pairs"),
        (partial(rsm.send_many, [(cast(Any, "top"), Freq("a", 1))]), InvalidArgument, "Ref.parse"),
        (partial(rsm.ask, cast(Any, Best())), InvalidArgument, "expected a question with its machine"),
        (partial(rsm.ask, Best().to(cast(Any, "top"))), InvalidArgument, "Ref.parse"),
        (partial(rsm.ask, Question(cast(Any, Freq("a", 1)), TOP)), InvalidArgument, "expected a question, a class"),
        (partial(rsm.ask, Best().to(TOP), timeout_s=cast(Any, "5")), InvalidArgument, "seconds, a number, found '5'"),
        (partial(rsm.ask, Best().to(TOP), timeout_s=float("nan")), InvalidArgument, "seconds, a number, found nan"),
        (partial(rsm.skip, cast(Any, "top")), InvalidArgument, "Ref.parse"),
        (partial(rsm.resume, Ref("words", 5_000, "top")), InvalidArgument, "a partition from 0"),
        (partial(rsm.create, Max, near=cast(Any, "top")), InvalidArgument, "group/partition/name"),
        (partial(rsm.create, Max, key="\ud800"), InvalidArgument, "UTF-8"),
        (partial(rsm.create, Max, wrong), WrongCall, "created with an event that it accepts"),
        (partial(rsm.send, TOP, Freq("x" * 600_000, 1)), AtomicTooLarge, "expected an event of at most"),
    ]
    for call, error, text in calls:
        with pytest.raises(error, match=text):
            await call()
    with pytest.raises(InvalidArgument, match="a class of app 'empty'"):
        await (await new_rsm(App("empty", []))).create(Max)


async def test_values_of_other_types_are_refused_before_anything_is_sent(new_rsm: NewRsm, new_host: NewHost) -> None:
    """An event with such a value would stop its machine, for everybody."""
    async with await new_rsm() as rsm:
        top = await rsm.create(Max, key="max")
        text: Any = "250"
        before = await rsm.log.book.now(consistency="linearizable")
        calls: list[tuple[Callable[[], Awaitable[object]], str]] = [
            (partial(rsm.send, top, Freq("a", text)), r"expected Freq to be of type Freq.*`int`, got `str`.*count"),
            (partial(rsm.send_many, [(top, Freq("b", 1)), (top, Freq("a", text))]), "expected Freq to be of type"),
            (partial(rsm.create, Max, Freq("a", text)), "expected Freq to be of type"),
            (partial(rsm.create, Max, Freq("a", text), key="max"), "expected Freq to be of type"),
            (partial(rsm.ask, Word(cast(Any, 5)).to(cast(Any, top))), "expected Word to be of type"),
            (partial(rsm.create, Counter, Init(cast(Any, str(top)))), r"Init cannot be stored: target of this Init"),
        ]
        for call, found in calls:
            with pytest.raises(NotEncodable, match=found):
                await call()
        assert await rsm.log.book.now(consistency="linearizable") == before
    async with await new_host(name="h") as host:
        assert await host.ask(Best().to(top)) == " 0"


async def test_a_question_that_no_host_handles_ends_in_time(new_rsm: NewRsm) -> None:
    async with await new_rsm() as rsm:
        with pytest.raises(AnswerTimeout, match=r"words/.* to answer Best within 0.05 s.* may still handle") as late:
            await rsm.ask(Best().to(TOP), timeout_s=0.05)
        assert isinstance(late.value, TimeoutError) and not late.value.definite
        assert not rsm._answers._asked
