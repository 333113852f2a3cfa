"""One step's body: attempts, time-outs, and what came of it. It runs on the outer loop, and knows nothing of the workflow."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from boki_common.runtime.bodies import interrupted
from boki_common.runtime.ports import Bodies
from bokiflow.calls import AnyStep, names_of
from bokiflow.flush import EVENT_BYTES, size_of
from bokiflow.outcomes import Outcome, failed, succeeded
from bokiflow.retry_rules import next_delay_s
from bokilib.errors import AtomicTooLarge, NotEncodable


class Tried(NamedTuple):
    """What came of a body, at which attempt."""

    outcome: Outcome
    attempts: int


async def run_body(step: AnyStep, args: tuple[Any, ...], options: dict[str, Any], bodies: Bodies) -> Tried:
    """Run a body until it returns, or fails for good.

    Everything that it raises is its outcome: SystemExit, GeneratorExit and the like too, which no `Retry` retries.

    Raises:
        CancelledError. KeyboardInterrupt: a person interrupted the program.
    """
    attempt = 0
    while True:
        attempt += 1
        try:
            value = await _attempt(step, args, options, bodies)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if interrupted(error):
                raise
            delay_s = next_delay_s(step.how.retry, attempt, error)
            if delay_s is None:
                return Tried(within_bounds(failed(error, names_of(step.function)), step.name), attempt)
            await asyncio.sleep(delay_s)
            continue
        try:
            return Tried(within_bounds(succeeded(value), step.name), attempt)
        except NotEncodable as error:
            return Tried(failed(NotEncodable(f"what step {step.name!r} returned {error}")), attempt)


async def _attempt(step: AnyStep, args: tuple[Any, ...], options: dict[str, Any], bodies: Bodies) -> Any:
    """Run a body once.

    Raises:
        TimeoutError: it ran for longer than its `timeout_s`; its cause shows where an `async def` waited.
    """
    limit = asyncio.timeout(step.how.timeout_s)
    try:
        async with limit:
            if step.is_async:
                return await step.function(*args, **options)
            return await bodies.run(lambda: step.function(*args, **options))
    except TimeoutError as error:
        if not limit.expired():
            raise  # the body's own
        text = f"step {step.name!r} ran for longer than its timeout_s={step.how.timeout_s:g}"
        raise TimeoutError(text) from (error.__cause__ or error.__context__)


def within_bounds(outcome: Outcome, name: str, limit: int = EVENT_BYTES) -> Outcome:
    """The outcome, or the error that it is too large for the log: nothing of it is sent."""
    size = size_of(outcome)
    if size <= limit:
        return outcome
    return failed(
        AtomicTooLarge(
            f"what {name!r} returned has {size} bytes, the log takes {limit}: store it elsewhere, and return where",
            expected=limit,
            found=size,
        )
    )
