"""Bodies of steps: attempts, time-outs, outcomes."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from boki.testing import MemoryCluster
from boki_common.runtime.bodies import ThreadBodies
from boki_common.testing.virtual_time import let_pass
from bokiflow import App, Retry
from bokiflow.execute.body import FailedAttempts, Tried, run_body
from bokiflow.model.outcomes import Outcome, failed
from bokiflow.model.record_batcher import EVENT_BYTES
from bokiflow.testing import in_virtual_time
from libs.tests.flow.conftest import Inline, working

APP = App("body")
ATTEMPTS: list[int] = []


@APP.step(retry=Retry(attempts=3, delay_s=0))
async def third_time(fails: int) -> int:
    ATTEMPTS.append(1)
    if len(ATTEMPTS) <= fails:
        raise OSError(len(ATTEMPTS))
    return len(ATTEMPTS)


@APP.step(timeout_s=0.001)
async def hang() -> None:
    await asyncio.Event().wait()


@APP.step
def blocks(value: int) -> int:
    return value + 1


@APP.step
async def gives(value: Any) -> Any:
    return value


@APP.step
async def cancels_itself() -> None:
    raise asyncio.CancelledError


async def outcome(step: Any, *args: Any) -> Outcome:
    return (await run_body(step, args, {}, Inline())).outcome


def type_of(found: Outcome) -> str:
    assert found.error is not None
    return found.error.type


async def test_attempts_go_on_until_one_succeeds_or_they_are_over() -> None:
    ATTEMPTS.clear()
    assert await outcome(third_time, 2) == Outcome(3)
    ATTEMPTS.clear()
    assert type_of(await outcome(third_time, 3)) == "builtins:OSError" and len(ATTEMPTS) == 3


async def test_an_attempt_that_is_retried_is_logged_once_a_second_of_each_step(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    ATTEMPTS.clear()
    app = App("shop")

    @app.workflow
    async def flow(fails: int) -> int:
        return await third_time(fails)

    async with working(cluster, app) as worker:
        assert await (await worker.start(flow.call(2), id="order-7")).result() == 3
        err = capsys.readouterr().err
    said = [line for line in err.split("\n") if "step attempt failed: retried" in line]
    facts = "step=third_time id=order-7 attempt=1 attempts=3 error=1 type=builtins:OSError next_in_s=0"
    assert len(said) == 1 and all(fact in said[0] for fact in facts.split()) and "left_out" not in said[0]


async def test_the_last_failed_attempt_of_a_worker_that_stops_has_its_line(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    app, retried = App("shop"), asyncio.Event()

    @app.step(retry=Retry(attempts=4, delay_s=0.0, on=(OSError,)))
    async def fails() -> None:
        ATTEMPTS.append(1)
        if len(ATTEMPTS) == 4:
            retried.set()
            await asyncio.Event().wait()
        raise OSError(str(len(ATTEMPTS)))

    @app.workflow
    async def flow() -> None:
        await fails()

    ATTEMPTS.clear()
    async with working(cluster, app) as worker:
        await worker.start(flow.call(), id="order-7")
        await retried.wait()
    said = [line for line in capsys.readouterr().err.split("\n") if "step attempt failed: retried" in line]
    assert len(said) == 2 and "attempt=1" in said[0]
    assert "attempt=3" in said[1] and "left_out=1" in said[1]


@in_virtual_time
async def test_lines_of_attempts_are_written_within_a_second_and_count_those_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = FailedAttempts()

    def fails(id: str, error: str, step: Any = third_time, delay_s: float = 5.0) -> None:
        said.say(step, id, 1, failed(OSError(error)), delay_s)

    def lines() -> list[str]:
        return [line for line in capsys.readouterr().err.split("\n") if "step attempt failed" in line]

    fails("o-1", "first")
    fails("o-1", "other", gives)
    assert ["step=third_time" in line for line in lines()] == [True, False]
    fails("o-2", "second")
    await let_pass(0.25)
    fails("o-3", "third")
    fails("o-4", "fourth")
    assert lines() == []
    await let_pass(0.8)
    (line,) = lines()
    for fact in ("id=o-4", "error=fourth", "left_out=2", "next_in_s=4.25"):
        assert fact in line
    fails("o-5", "fifth")
    await let_pass(0.9)
    assert lines() == []
    await let_pass(8)
    (line,) = lines()
    assert "id=o-5" in line and "left_out" not in line
    fails("o-6", "sixth")
    (line,) = lines()
    assert "id=o-6" in line, "after a silence a line is written at once"


async def test_the_attempts_are_counted() -> None:
    ATTEMPTS.clear()
    assert await run_body(third_time, (1,), {}, Inline()) == Tried(Outcome(2), 2)


async def test_an_attempt_that_takes_too_long_is_a_timeout_that_says_of_what_and_where() -> None:
    found = await outcome(hang)
    assert type_of(found) == "builtins:TimeoutError" and found.error is not None
    assert found.error.message == "step 'hang' ran for longer than its timeout_s=0.001"
    detail = found.error.detail
    assert detail is not None and detail.cause is not None and detail.cause.detail is not None
    assert "in hang" in detail.cause.detail.stack


@APP.step(timeout_s=60)
async def raises_a_timeout_of_its_own() -> None:
    raise TimeoutError("of the shop")


async def test_a_timeout_of_the_body_is_its_own() -> None:
    found = await outcome(raises_a_timeout_of_its_own)
    assert found.error is not None and found.error.message == "of the shop"


async def test_a_body_that_blocks_goes_through_the_port() -> None:
    assert await outcome(blocks, 1) == Outcome(2)


async def test_results_that_no_log_takes_are_errors() -> None:
    assert type_of(await outcome(gives, object())) == "bokilib.errors:NotEncodable"
    assert type_of(await outcome(gives, "a" * EVENT_BYTES)) == "bokilib.errors:AtomicTooLarge"


async def test_a_body_that_raises_cancellation_differs_from_one_that_is_cancelled() -> None:
    with pytest.raises(asyncio.CancelledError):
        await outcome(cancels_itself)


@APP.step(retry=Retry(attempts=3, delay_s=0))
async def raises(error: BaseException) -> None:
    ATTEMPTS.append(1)
    raise error


@APP.step
def first_of_nothing() -> int:
    return next(iter([]))


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=lambda one: type(one).__name__
)
async def test_what_would_end_the_program_ends_its_step_alone_and_is_not_retried(error: BaseException) -> None:
    ATTEMPTS.clear()
    assert type_of(await outcome(raises, error)) == f"builtins:{type(error).__name__}" and len(ATTEMPTS) == 1


@APP.step
async def long_loop() -> None:
    signal.raise_signal(signal.SIGINT)


async def test_ctrl_c_while_a_body_runs_is_no_outcome_of_it() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            await run_body(long_loop, (), {}, Inline())
    finally:
        signal.signal(signal.SIGINT, before)


async def test_a_function_that_asks_an_empty_iterator_fails() -> None:
    found = (await run_body(first_of_nothing, (), {}, ThreadBodies())).outcome
    assert type_of(found) == "builtins:RuntimeError"
    assert found.error is not None and found.error.detail is not None and found.error.detail.cause is not None
    assert found.error.detail.cause.type == "builtins:StopIteration"


@APP.step(retry=Retry(attempts=3, delay_s=0))
async def empties(names: list[str], more: dict[str, list[str]]) -> list[str]:
    seen = [*names, *more["names"]]
    while names:
        names.pop()
        more["names"].clear()
        if len(ATTEMPTS) < 2:
            ATTEMPTS.append(1)
            raise OSError
    return seen


async def test_each_attempt_gets_the_arguments_as_they_were_given() -> None:
    ATTEMPTS.clear()
    args, options = (["ann", "bob"],), {"more": {"names": ["cleo"]}}
    tried = await run_body(empties, args, options, Inline())
    assert tried == Tried(Outcome(["ann", "bob", "cleo"]), 3)
    assert (args, options) == ((["ann", "bob"],), {"more": {"names": ["cleo"]}})
