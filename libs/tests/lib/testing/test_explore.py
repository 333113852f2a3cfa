"""The explorer finds the fault of a naive program, and none in a correct one."""

from __future__ import annotations

import asyncio
import gc

import pytest

import boki
from boki_common.testing.virtual_time import VirtualTimeLoop, let_pass
from bokilib.ports import BookPort
from bokilib.testing import UNANSWERED, UNKNOWNS, crash_everywhere, start_anywhere


async def two_steps(book: BookPort) -> None:
    """A naive program that should append both records or none."""
    await book.submit(b"debit", tags=["a"])
    await book.submit(b"credit", tags=["b"])


async def balanced(book: boki.Book) -> None:
    count = {tag: len([item async for item in book.read(tag, consistency="linearizable")]) for tag in ("a", "b")}
    assert count["a"] == count["b"], count


async def counted_once(book: boki.Book) -> None:
    assert len([item async for item in book.read("n", consistency="linearizable")]) == 1


async def test_a_crash_between_two_steps_is_found_and_reported() -> None:
    with pytest.raises(AssertionError) as raised:
        await crash_everywhere(two_steps, check=balanced)
    (note,) = raised.value.__notes__
    assert "program: append to ['a']" in note and "met after at operation 0" in note


async def test_one_record_for_both_survives_every_crash() -> None:
    async def one_step(book: BookPort) -> None:
        await book.submit(b"both", tags=["a", "b"])

    assert await crash_everywhere(one_step, check=balanced) == (1, 2)


async def count_naively(book: BookPort) -> None:
    """Append again after a lost answer or a restart."""
    try:
        await book.submit(b"1", tags=["n"])
    except boki.OutcomeUnknown:
        await book.submit(b"1", tags=["n"])


async def count_once(book: BookPort) -> None:
    """Append under an expectation, and look at the log before the append and after a Conflict."""
    if await book.read_prev("n", consistency="linearizable") is None:
        ticket = book.submit(b"1", tags=["n"], expect={"n": None})
        try:
            await ticket
        except boki.OutcomeUnknown:
            if isinstance(await ticket.outcome(settle=True), boki.Never):
                await count_once(book)
        except boki.Conflict:
            pass


async def test_a_lost_answer_counts_twice_for_who_appends_again() -> None:
    with pytest.raises(AssertionError, match="2"):
        await crash_everywhere(count_naively, check=counted_once, kinds=UNKNOWNS)
    with pytest.raises(AssertionError, match="2"):
        await crash_everywhere(count_naively, count_naively, counted_once)
    await crash_everywhere(count_once, count_once, counted_once, pairs=True)
    await crash_everywhere(count_once, check=counted_once, kinds=UNKNOWNS)


class Booking:
    """Reserve within a time-out, release, and finish; a process that gave up the reservation must release it, too."""

    def __init__(self, *, careful: bool) -> None:
        self._careful = careful

    async def program(self, book: BookPort) -> None:
        if await book.read_prev("finished", consistency="linearizable") is not None:
            return
        if await book.read_prev("a", consistency="linearizable") is None:
            reserving = asyncio.ensure_future(self._append(book, "a"))
            done, _ = await asyncio.wait([reserving], timeout=0.05)
            if self._careful or done:
                await reserving
                await book.submit(b"released", tags=["b"])
        elif await book.read_prev("b", consistency="linearizable") is None:
            await book.submit(b"released", tags=["b"])
        await book.submit(b"", tags=["finished"])

    @staticmethod
    async def _append(book: BookPort, tag: str) -> int:
        return await book.submit(b"reserved", tags=[tag])


def test_a_program_that_continues_without_an_answer_is_found_if_it_dies_later() -> None:
    async def explores() -> None:
        careless, careful = Booking(careful=False).program, Booking(careful=True).program
        await crash_everywhere(careless, careless, balanced, pairs=True)
        with pytest.raises(AssertionError) as raised:
            await crash_everywhere(careless, careless, balanced, kinds=UNANSWERED)
        assert "program met unanswered at operation 2, and died 1 operations later" in raised.value.__notes__[0]
        assert await crash_everywhere(careful, careful, balanced, kinds=UNANSWERED) == (5, 3 * 2)
        await crash_everywhere(careful, careful, balanced, kinds=UNANSWERED, later=(0, 1, 2, 3), pairs=True)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(explores())


async def test_a_second_process_anywhere() -> None:
    async def read_then_write(book: BookPort) -> None:
        if await book.read_prev("n", consistency="linearizable") is None:
            await book.submit(b"1", tags=["n"])

    with pytest.raises(AssertionError) as raised:
        await start_anywhere(read_then_write, read_then_write, counted_once)
    assert "before operation 1" in raised.value.__notes__[0]
    explored = await start_anywhere(count_once, count_once, counted_once)
    assert explored.runs == explored.operations == 2


async def test_pairs_kill_the_recovery_too() -> None:
    """A program that survives one crash and not two: its second recovery trusts the mark of an unfinished first one."""

    async def recover(book: BookPort) -> None:
        if await book.read_prev("begun", consistency="linearizable") is None:
            await book.submit(b"", tags=["begun"])
            await book.submit(b"", tags=["n"])

    async def program(book: BookPort) -> None:
        await book.submit(b"", tags=["n", "begun"])

    await crash_everywhere(program, recover, counted_once)
    with pytest.raises(AssertionError):
        await crash_everywhere(program, recover, counted_once, pairs=True)


async def test_the_second_process_goes_on_though_the_first_gives_up_what_it_was_about() -> None:
    ended: list[int] = []

    async def impatient(book: BookPort) -> None:
        asking = asyncio.ensure_future(book.now())
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

    async def second(book: BookPort) -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        ended.append(await book.now())

    explored = await start_anywhere(impatient, second)
    assert len(ended) == explored.runs == 1


def test_the_first_process_stops_wholly_while_the_second_one_waits_for_that() -> None:
    """One operation of a process waits, and its heartbeats would go on for ever."""

    async def beating(book: BookPort) -> None:
        async def beat() -> None:
            while True:
                await book.submit(b"", tags=["beat"])
                await let_pass(0.5)

        beats = asyncio.ensure_future(beat())
        await let_pass(0.2)
        await book.now()
        beats.cancel()

    async def patient(book: BookPort) -> None:
        seen = None
        while (newest := await book.read_prev("beat", consistency="linearizable")) != seen:
            seen = newest
            await let_pass(3)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        explored = runner.run(asyncio.wait_for(start_anywhere(beating, patient), 600))
    assert explored.runs == 2


async def test_tasks_of_a_process_that_was_killed_do_not_complain_when_they_are_collected() -> None:
    complaints: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(str(context)))

    async def work(book: BookPort) -> None:
        asking = asyncio.ensure_future(book.now())
        await asyncio.wait([asking])
        await book.now()

    assert (await crash_everywhere(work)).runs == 4
    gc.collect()
    loop.set_exception_handler(None)
    assert complaints == []
