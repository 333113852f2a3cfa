"""A workflow as programs that are killed: whoever runs begins again where the one before died, and what is left is looked at.

Each program is a process: a session of its own, a worker under the one name that all have, so that the next takes the place of the one that
died at once. It starts the workflow, sends it its signals, each once whoever did it before, and waits for its end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import boki
from bokiflow.client.app import App
from bokiflow.client.replayer import export
from bokiflow.errors import NonDeterminism
from bokiflow.model.flow_events import PICKER, Ended, Signalled, Started, Stepped
from bokiflow.model.outcomes import Outcome
from bokiflow.model.plain import as_json
from bokiflow.runtime.calls import Call
from bokiflow.testing._replays import replays_everywhere
from bokiflow.testing._virtual import LoopClock
from bokiflow.worker.worker import Worker
from bokilib.append.log import Log
from bokilib.ports import BookPort
from bokilib.records import tags
from bokilib.testing import CRASHES, UNKNOWNS, FaultKind, crash_everywhere, start_anywhere, while_alive

Made: TypeAlias = tuple[App, Call[Any]]
Make: TypeAlias = Callable[[Log], Made]
Look: TypeAlias = Callable[[boki.Book], Awaitable[object]]

ID: Final = "tested"
LEASE_S: Final = 30 * 365 * 86_400.0
"""Nobody waits for one here: who begins again takes his own place. So it is longer than any sleep in virtual time. Nor is anything
collected: checks look at all records."""
ANYTHING: Final = object()


class Survived(NamedTuple):
    """What was tried.

    Attributes:
        operations: of the log, without faults. runs: with a fault, or a second worker. replays: of histories.
        histories: by id, those of the run without faults, as `replayer.export` makes them.
    """

    operations: int
    runs: int
    replays: int
    histories: Mapping[str, bytes]


class _Inline:
    """Bodies that block run where they are: a test has no threads."""

    async def run(self, body: Callable[[], Any], *, name: str = "", begun: Callable[[], None] | None = None) -> Any:
        if begun is not None:
            begun()
        return body()


async def _nothing(_: object) -> None:
    """Nothing is looked at."""


class Scenario:
    """See the module. `make`: an app and its call, of the log of the process that runs them. app: of the last process."""

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
        """
        Args:
            expected: what it returns. raises: or what it raises.
            signals: topics and values that are sent to it, in order. check: looks at the book when all is over.
        """
        self._make: Final = make
        self._id: Final = id
        self._expected: Final = expected
        self._raises: Final = raises
        self._signals: Final = [(topic, as_json(value)) for topic, value in signals]
        self._check: Final = check
        self.app: App | None = None

    async def program(self, book: BookPort) -> None:
        """One process, until the workflow ended; see `bokilib.testing`."""
        await while_alive(book, self._work(book))

    async def _work(self, book: BookPort) -> None:
        log = Log(book)
        self.app, call = self._make(log)
        made = Worker(
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
                    pass  # again, with the same id: that is what it is for
            for number in range(len(self._signals)):
                await self._signal(worker, number)
            try:
                await handle.result()
            except NonDeterminism:
                raise
            except Exception:
                if await handle.status() in ("running", "blocked"):
                    raise  # it is not how it ended

    async def _signal(self, worker: Worker, number: int) -> None:
        """Once, whoever did it before."""
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
        """Each workflow ended once, each step has one outcome, and what was tested gave what it should. Raises AssertionError."""
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
    """Holds a workflow against everything that can happen to its processes; see the package.

    Args:
        program: an app, with its call; or a function that makes both of a process's `Log`.
        expected: what it returns. raises: or what it raises. By default whatever it is.
        signals: topics and values that are sent to it, in order. check: looks at the book when all is over, after each run.
        faults: at each operation. second_worker: one takes over before each operation. pairs: recoveries die too, which takes long.

    Raises:
        AssertionError, or what the workflow or the check raised, with a note of which fault led to it. NonDeterminism.
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
