"""Runs the body of one step: attempts, time-outs and the outcome. It runs on the worker's event loop, and does not use the workflow."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from boki_common.background_tasks import leave_behind
from boki_common.errors import ThreadsExhausted
from boki_common.interruption import interrupted
from boki_common.log_pace import LogPace
from boki_common.logs import NAMED, get_logger
from boki_common.runtime.ports import Bodies
from bokiflow.model.outcomes import Names, Outcome, copied, failed
from bokiflow.model.record_batcher import within_bounds
from bokiflow.runtime.calls import AnyStep, next_delay_s
from bokilib.errors import NotEncodable
from bokilib.stacks import frames_of, users_frames

EXHAUSTED_S: Final = 5.0
"""Seconds until a step tries again to get a thread, when all run functions that timed out or were cancelled."""
CANCELLED_S: Final = 1.0
"""Seconds in which a cancelled body has to end when its worker stops. A later one is left behind, so that it delays no other workflow."""
WAITING_FRAMES: Final = 256
STACK_FRAMES: Final = 16
"""Frames of a body that does not end which are read, and which a log line has."""
SAID_EVERY_S: Final = 1.0
"""Seconds between two log lines about failed attempts of one step."""

log = get_logger(__name__)


class NotBegun(Exception):
    """The worker of a step is being drained, and the function of the step does not begin."""


class Gate:
    """The gate that each attempt of a step passes before its function begins: closed while the worker is being drained.

    Invariant: once the gate was closed and `began` was False after that, no attempt begins. So an attempt sets `began` before it looks.

    Attributes:
        began: the function of an attempt has begun, and has not failed.
    """

    def __init__(self, closed: Callable[[], bool] = lambda: False) -> None:
        """Make a gate. `closed` tells whether it is closed, and may be called in any thread."""
        self.began = False
        self._closed: Final = closed

    def enter(self) -> None:
        """Begin an attempt; called in the thread that runs its function. Raises NotBegun."""
        self.began = True
        if self._closed():
            self.began = False
            raise NotBegun

    def failed(self) -> None:
        """End an attempt that is to be retried. Raises NotBegun: the next worker retries it."""
        self.began = False
        if self._closed():
            raise NotBegun


class FailedAttempts:
    """The log lines of attempts that failed and are retried, of all workflows of a worker: one a second of each step at most.

    The log of a book has only the outcome of the last attempt.
    """

    def __init__(self) -> None:
        self._steps: Final[dict[str, LogPace]] = {}

    def say(self, step: AnyStep, workflow: str, attempt: int, outcome: Outcome, delay_s: float) -> None:
        """Log a failed attempt within a second. `left_out` of the line: attempts before it that have no line."""
        error = outcome.error
        assert error is not None
        facts = {
            "step": step.name,
            "id": workflow,
            "attempt": attempt,
            "attempts": step.how.retry.attempts,
            "error": error.text,
            "type": error.type,
        }
        pace = self._steps.get(step.name)
        if pace is None:
            pace = self._steps[step.name] = LogPace(_write, "step attempt failed: retried", every_s=SAID_EVERY_S)
        pace.say(next_s=asyncio.get_running_loop().time() + delay_s, **facts)

    def flush(self) -> None:
        """Write the lines that are held back, at the end of the worker."""
        for pace in self._steps.values():
            pace.flush()


def _write(event: str, *, next_s: float, **facts: object) -> None:
    """Write a line with the seconds until the next attempt, which begins at `next_s` by the loop's clock."""
    next_in_s = round(max(0.0, next_s - asyncio.get_running_loop().time()), 3)
    log.warning(event, **facts, next_in_s=next_in_s)


class CancelledBodies:
    """The bodies of a worker that were cancelled and have not ended: a body may clean up, or swallow its cancellation."""

    def __init__(self, worker: str) -> None:
        self._worker: Final = worker
        self._tasks: Final[dict[asyncio.Task[None], tuple[str, str]]] = {}
        """The tasks with the names of their steps and the ids of their workflows."""

    def cancel(self, task: asyncio.Task[None], step: str, id: str) -> None:
        """Cancel the body of a step or transaction of a workflow."""
        task.cancel()
        self._tasks[task] = step, id
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks that run the bodies."""
        return list(self._tasks)

    async def ended(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """Wait for cancelled tasks. Leave behind those that do not end within `CANCELLED_S`, and log where they wait."""
        waiting = {*tasks}
        if not waiting:
            return
        done, late = await asyncio.wait(waiting, timeout=CANCELLED_S)
        await asyncio.gather(*done, return_exceptions=True)
        for number, task in enumerate(sorted(late, key=lambda one: self._tasks.get(one, (one.get_name(), "")))):
            leave_behind(task)
            step, id = self._tasks.pop(task, (task.get_name(), ""))
            if number < NAMED:
                log.warning(
                    "step left behind: it runs on although it was cancelled, its outcome is not recorded",
                    worker=self._worker,
                    id=id,
                    step=step,
                    late=len(late),
                    stack="".join(
                        traceback.format_list(users_frames(frames_of(task.get_coro(), WAITING_FRAMES))[-STACK_FRAMES:])
                    ),
                )


class Tried(NamedTuple):
    """The outcome of a body, and the number of its attempts."""

    outcome: Outcome
    attempts: int


async def run_body(
    step: AnyStep,
    args: tuple[Any, ...],
    options: dict[str, Any],
    bodies: Bodies,
    workflow: str = "",
    names: Names = MappingProxyType({}),
    gate: Gate | None = None,
    said: FailedAttempts | None = None,
) -> Tried:
    """Run a body of a workflow until it returns, or fails for good.

    Everything that it raises is its outcome, SystemExit and GeneratorExit too, which no `Retry` retries. Each attempt gets a copy of the
    arguments: an attempt that fails after it changed them leaves nothing to the next one.

    Args:
        step: the step.
        args: the positional arguments.
        options: the keyword arguments.
        bodies: the threads of plain functions.
        workflow: the id of the workflow.
        names: the names of the module of the workflow.
        gate: the gate that each attempt passes.
        said: logs attempts that are retried.

    Raises:
        CancelledError: the task was cancelled.
        KeyboardInterrupt: a person interrupted the program.
        NotBegun: the gate is closed, and no attempt runs.
    """
    gate, attempt = gate or Gate(), 0
    while True:
        attempt += 1
        try:
            value = await _attempt(step, copied(args), copied(options), bodies, workflow, gate)
        except (asyncio.CancelledError, NotBegun):
            raise
        except BaseException as error:
            if interrupted(error):
                raise
            delay_s = next_delay_s(step.how.retry, attempt, error)
            if delay_s is None:
                return Tried(within_bounds(failed(error, step.names, names), step.name), attempt)
            if said is not None:
                said.say(step, workflow, attempt, failed(error), delay_s)
            gate.failed()
            await asyncio.sleep(delay_s)
            continue
        try:
            return Tried(within_bounds(Outcome(step.signature.stored(value)), step.name), attempt)
        except NotEncodable as error:
            return Tried(failed(NotEncodable(f"what step {step.name!r} returned {error}")), attempt)


async def _attempt(
    step: AnyStep, args: tuple[Any, ...], options: dict[str, Any], bodies: Bodies, workflow: str, gate: Gate
) -> Any:
    """Run a body once.

    Raises:
        TimeoutError: the body ran for longer than its `timeout_s`, which does not include the wait for a thread. The cause shows where
            an `async def` waited.
    """
    timeout_s = step.how.timeout_s
    limit = asyncio.timeout(timeout_s if step.is_async else None)

    def begun() -> None:
        assert timeout_s is not None
        limit.reschedule(asyncio.get_running_loop().time() + timeout_s)

    try:
        async with limit:
            if step.is_async:
                gate.enter()
                return await step.function(*args, **options)
            name = f"step {step.name!r} of workflow {workflow!r}"
            return await _in_thread(
                lambda: step.function(*args, **options), bodies, name, begun if timeout_s is not None else None, gate
            )
    except TimeoutError as error:
        if not limit.expired():
            raise  # the body's own
        text = f"step {step.name!r} ran for longer than its timeout_s={timeout_s:g}"
        raise TimeoutError(text) from (error.__cause__ or error.__context__)


async def _in_thread(
    function: Callable[[], Any], bodies: Bodies, name: str, begun: Callable[[], None] | None, gate: Gate
) -> Any:
    """Run a plain function once. It waits for as long as threads are exhausted: that is no fault of its step."""

    def body() -> Any:
        gate.enter()
        return function()

    while True:
        try:
            return await bodies.run(body, name=name, begun=begun)
        except ThreadsExhausted:
            if gate.began:
                raise  # the function's own
        await asyncio.sleep(EXHAUSTED_S)
