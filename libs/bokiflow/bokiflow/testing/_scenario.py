"""The test of a workflow under faults: processes run it and are killed at each operation; afterwards the log is checked.

Each process has a session and a worker of its own. All workers have one name, so that the next process takes the place of a dead one at
once. A process starts the workflow, sends it the signals that no earlier process has sent, and waits for its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from functools import wraps
from inspect import isawaitable
from typing import Any, ClassVar, Final, NamedTuple, ParamSpec, TypeAlias, TypeVar

import msgspec

import boki
from boki_common.testing.virtual_time import VirtualTimeLoop
from bokiflow.client.app import App
from bokiflow.client.replayer import export, replay
from bokiflow.errors import NonDeterminism
from bokiflow.model.flow_events import PICKER, Ended, Signalled, Started, Stepped
from bokiflow.model.outcomes import Outcome, as_json
from bokiflow.runtime.calls import Call
from bokiflow.worker.worker import Worker
from bokilib.append.log import Log
from bokilib.ports import BookPort
from bokilib.records import tags
from bokilib.testing import CRASHES, UNKNOWNS, Died, FaultKind, crash_everywhere, start_anywhere, while_alive

Made: TypeAlias = tuple[App, Call[Any]]
Make: TypeAlias = Callable[[Log], Made | Awaitable[Made]]
Look: TypeAlias = Callable[[boki.Book], Awaitable[object]]

P = ParamSpec("P")
R = TypeVar("R")

ID: Final = "tested"
LEASE_S: Final = 30 * 365 * 86_400.0
"""Longer than any sleep in virtual time: the next process takes over by its name, without waiting for a lease. It is the interval of
retention, too, so nothing is trimmed, and checks see all records."""
ANYTHING: Final = object()
BEGIN_MS: Final = 1_700_000_000_000
"""The wall clock's time when the time of the loop is 0."""
REPLAYS: Final = 5
"""Replays of the whole history: objects that hash by address have a new address each time."""


class Survived(NamedTuple):
    """The extent of a test that passed.

    Attributes:
        operations: operations of the log in the run without faults.
        runs: runs with a fault or a second worker.
        replays: replays of histories.
        histories: the histories of the run without faults, by id, as `replayer.export` returns them.
    """

    operations: int
    runs: int
    replays: int
    histories: Mapping[str, bytes]


class _Inline:
    """A runner of blocking bodies that calls them at once: a test has no threads."""

    async def run(self, body: Callable[[], Any], *, name: str = "", begun: Callable[[], None] | None = None) -> Any:
        if begun is not None:
            begun()
        return body()


async def _nothing(_: object) -> None:
    """Check nothing."""


class _Patient(Worker):
    """A worker whose lease is longer than any sleep in virtual time, and which does not log that its process was killed."""

    _lease_most_s: ClassVar[float] = LEASE_S

    def _ends_process(self, id: str, error: BaseException) -> None:
        if not isinstance(error, Died):
            super()._ends_process(id, error)


class Scenario:
    """A workflow to test, and its expected result.

    Attributes:
        app: the app of the last process.
    """

    def __init__(
        self,
        make: Make,
        *,
        id: str = ID,
        expected: object = ANYTHING,
        raises: type[Exception] | None = None,
        signals: Sequence[tuple[str, object]] = (),
        check: Look = _nothing,
    ) -> None:
        """Create a scenario.

        Args:
            make: returns the app and the call, from the log of a process; a coroutine function, too.
            id: the id of the workflow.
            expected: its result.
            raises: the class of its error, instead of a result.
            signals: topics and values to send to it, in order.
            check: checks the book after each run.
        """
        self._make: Final = make
        self._id: Final = id
        self._expected: Final = expected
        self._raises: Final = raises
        self._signals: Final = [(topic, as_json(value)) for topic, value in signals]
        self._check: Final = check
        self.app: App | None = None

    async def program(self, book: BookPort) -> None:
        """Run one process until the workflow has ended or the process is killed; see `bokilib.testing`."""
        await while_alive(book, self._work(book))

    async def _work(self, book: BookPort) -> None:
        log = Log(book)
        made_by = self._make(log)
        self.app, call = await made_by if isawaitable(made_by) else made_by
        made = _Patient(
            self.app,
            log,
            name="tested",
            lease_s=LEASE_S,
            collect_every_s=LEASE_S,
            bodies=_Inline(),
        )
        async with made as worker:
            while True:
                try:
                    handle = await worker.start(call, id=self._id)
                    break
                except boki.OutcomeUnknown:
                    pass  # retry with the same id, which starts the workflow at most once
            for number in range(len(self._signals)):
                await self._signal(worker, number)
            try:
                await handle.result()
            except NonDeterminism:
                raise
            except Exception:
                if await handle.status() in ("running", "blocked"):
                    raise  # the error is not the outcome of the workflow

    async def _signal(self, worker: Worker, number: int) -> None:
        """Send a signal, unless an earlier process has sent it."""
        topic, value = one = self._signals[number]
        wanted = self._signals[: number + 1].count(one)
        while await self._sent(worker.log, topic, value) < wanted:
            try:
                await worker.handle(self._id).signal(topic, value)
                return
            except boki.OutcomeUnknown as unknown:
                await unknown.outcome()

    async def _sent(self, log: Log, topic: str, value: object) -> int:
        found = 0
        async for item in log.book.read(tags.flow_history(self._id)):
            if not isinstance(item, boki.Gap):
                events = PICKER.of(item.seqnum, await log.open(item), about=self._id)
                found += sum(isinstance(one, Signalled) and (one.topic, one.value) == (topic, value) for one in events)
        return found

    async def check(self, book: boki.Book) -> None:
        """Check that each workflow ended once, each step has one outcome, and the workflow has the expected result.

        Raises:
            AssertionError: one of these does not hold.
        """
        log = Log(book)
        ends: dict[str, list[Outcome]] = {}
        steps: dict[tuple[str, str], int] = {}
        async for item in book.read():
            assert not isinstance(item, boki.Gap), "nothing is trimmed in a test"
            for event in PICKER.of(item.seqnum, await log.open(item)):
                if isinstance(event, Ended):
                    ends.setdefault(event.id, []).append(event.outcome)
                elif isinstance(event, Stepped):
                    steps[event.id, event.key] = steps.get((event.id, event.key), 0) + 1
        several = {id: len(found) for id, found in ends.items() if len(found) > 1}
        assert not several, f"expected each workflow to end once, found {several}"
        again = {key: count for key, count in steps.items() if count > 1}
        assert not again, f"expected one outcome of each step, found {again}"
        assert self._id in ends, f"expected the workflow to end, found {sorted(ends)}"
        self._look(ends[self._id][0])
        await self._check(book)

    def _look(self, outcome: Outcome) -> None:
        if self._raises is not None:
            wanted = f"{self._raises.__module__}:{self._raises.__qualname__}"
            found = outcome.error.type if outcome.error is not None else f"the result {outcome.value!r}"
            assert found == wanted, f"expected it to raise {wanted}, found {found}"
        elif self._expected is not ANYTHING:
            assert outcome.error is None, f"expected the result {self._expected!r}, found {outcome.error}"
            wanted_value = as_json(self._expected)
            assert outcome.value == wanted_value, f"expected the result {wanted_value!r}, found {outcome.value!r}"


async def survives(
    program: App | Make,
    call: Call[Any] | None = None,
    *,
    expected: object = ANYTHING,
    raises: type[Exception] | None = None,
    signals: Sequence[tuple[str, object]] = (),
    check: Look = _nothing,
    id: str = ID,
    faults: Sequence[FaultKind] = (*CRASHES, *UNKNOWNS),
    second_worker: bool = True,
    pairs: bool = False,
) -> Survived:
    """Test that a workflow ends once with its result, with each fault at each operation of the log; see the package.

    Args:
        program: an app; or a function, which may be async, that gets a process's `Log` and returns an app and a call.
        call: the call, beside an app.
        expected: the result of the workflow; by default any result or error.
        raises: the class of its error, instead of a result.
        signals: topics and values to send to it, in order.
        check: checks the book after each run.
        id: the id of the workflow.
        faults: the faults to try at each operation.
        second_worker: also run with a second worker that takes over before each operation.
        pairs: also kill the processes that recover, which takes long.

    Returns:
        The extent of the test.

    Raises:
        AssertionError: a run left a wrong result, with a note of the fault that led to it.
        NonDeterminism: a replay differs from the history.
    """
    make = _maker(program, call)
    scenario = Scenario(make, id=id, expected=expected, raises=raises, signals=signals, check=check)
    histories: dict[str, bytes] = {}

    async def plain(book: boki.Book) -> None:
        await scenario.check(book)
        histories.update(await _histories(book))

    explored = await crash_everywhere(scenario.program, check=plain, kinds=(), clock=LoopClock())
    assert scenario.app is not None
    replays = sum([await replays_everywhere(scenario.app, history) for history in histories.values()])
    crashed = await crash_everywhere(
        scenario.program, scenario.program, scenario.check, kinds=faults, pairs=pairs, clock=LoopClock()
    )
    runs = crashed.runs
    if second_worker:
        runs += (await start_anywhere(scenario.program, scenario.program, scenario.check, clock=LoopClock())).runs
    return Survived(explored.operations, runs, replays, histories)


def _maker(program: App | Make, call: Call[Any] | None) -> Make:
    if isinstance(program, App):
        assert call is not None, "expected a call beside the app"
        made = (program, call)
        return lambda _: made
    assert call is None, "expected the function to give the call"
    return program


async def _histories(book: boki.Book) -> dict[str, bytes]:
    log, found = Log(book), dict[str, bytes]()
    async for item in book.read():
        assert not isinstance(item, boki.Gap)
        for event in PICKER.of(item.seqnum, await log.open(item)):
            if isinstance(event, Started):
                found[event.id] = await export(log, event.id)
    return found


# -- replays


async def replays_everywhere(app: App, history: bytes) -> int:
    """Replay each beginning of a history, as if the workflow had been dropped from memory after each record, and the whole several times.

    Args:
        app: the app with the workflow.
        history: a history from `replayer.export`.

    Returns:
        The number of replays.

    Raises:
        NonDeterminism: the code does not do what it did before.
        NotRegistered: the app has no such workflow.
        CorruptData: this is no history.
    """
    await replay(app, history)
    whole = msgspec.json.decode(history)
    records = whole["records"]
    kept: list[list[object]] = []  # objects created between two replays, so that addresses differ
    for count in [*range(len(records)), *[len(records)] * REPLAYS]:
        kept.append([object() for _ in range(97)])
        await replay(app, msgspec.json.encode({**whole, "records": records[:count]}))
    return len(records) + REPLAYS + 1


# -- virtual time: a sleep of a day takes no time, and wall clocks are the loop's


class LoopClock:
    """A wall clock that runs with the event loop's time, virtual or real.

    MemoryCluster(clock=LoopClock(start=datetime(2027, 3, 27, 12, tzinfo=UTC)))
    """

    _zero_ms: int = BEGIN_MS

    def __init__(self, start: datetime | None = None) -> None:
        """Create a clock.

        Args:
            start: the time that it is now, with a time zone; by default all clocks of a loop agree, and a loop in virtual time begins at
                2023-11-14T22:30Z. With it, make the clock in the test, whose loop runs.

        Raises:
            InvalidArgument: the time has no time zone.
        """
        if start is not None:
            if start.tzinfo is None:
                raise boki.InvalidArgument(f"expected a start with a time zone, found {start!r}", found=start)
            self._zero_ms = round((start.timestamp() - asyncio.get_running_loop().time()) * 1_000)

    def now_ms(self) -> int:
        """Return milliseconds since 1970 UTC."""
        return self._zero_ms + round(asyncio.get_running_loop().time() * 1_000)

    def elapsed_s(self) -> float:
        """Return seconds since a fixed but arbitrary moment."""
        return asyncio.get_running_loop().time()


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
    """Turn a coroutine function into a test on an event loop whose clock jumps to the next timer when no task is ready.

    The test may use no sockets, threads or processes: `MemoryCluster` needs none. Schedules, sleeps and retention go by the log's time:
    give the log the same clock, `MemoryCluster(clock=LoopClock())`.
    """

    @wraps(test)
    def run(*args: P.args, **options: P.kwargs) -> R:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            return runner.run(test(*args, **options))

    return run
