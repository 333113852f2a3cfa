"""What one workflow has under way beside its code: bodies of steps and transactions, what is done later.

What ends is given to `on_ended`; what is stopped is not. While its worker finishes (`Worker.drain`), functions of steps that run may end
and no others begin, also not those that wait for a thread or between two attempts: the next worker begins them. Of a step that runs at most
once, whose beginning is in the log already, it is reported that it did not begin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from boki_common.errors import BokiError
from boki_common.logs import get_logger
from boki_common.runtime.ports import Bodies
from bokiflow.errors import NonDeterminism
from bokiflow.execute.body import FailedAttempts, Gate, NotBegun, run_body
from bokiflow.execute.family import CalledParts, Family, FamilyHost
from bokiflow.execute.traces import note
from bokiflow.locks.lock_room import LockRoom, Ready
from bokiflow.model.flow_events import Incoming, Started, TransactionPart
from bokiflow.model.outcomes import Outcome, failed
from bokiflow.runtime import transactional
from bokiflow.runtime.calls import AnyStep
from bokiflow.runtime.commands import RunStep
from bokiflow.runtime.lock_entries import TakeLock
from bokiflow.runtime.transactional import FinishedPart, ReadyTransaction, RunTransaction, StagedTransaction

log = get_logger(__name__)

Body: TypeAlias = RunStep | RunTransaction | TakeLock


class BodyEnded(NamedTuple):
    """A body ended. `unfit`: why this program cannot go on with it, and nothing is recorded."""

    key: str
    outcome: Outcome
    took_ms: int = 0
    attempts: int = 1
    part: TransactionPart | None = None
    unfit: NonDeterminism | None = None


class StepWithdrawn(NamedTuple):
    """A step that runs at most once did not begin, and does not begin here any more."""

    key: str


class Turn(NamedTuple):
    """It holds a lock that it waited for."""

    key: str
    number: int


class Received(NamedTuple):
    """An event from others."""

    seqnum: int
    time_ms: int
    event: Incoming


Ended: TypeAlias = BodyEnded | StepWithdrawn | ReadyTransaction | Ready


class BodyHost(FamilyHost, Protocol):
    """What bodies need of their worker."""

    @property
    def bodies(self) -> Bodies: ...

    @property
    def locks(self) -> LockRoom: ...

    @property
    def failed_attempts(self) -> FailedAttempts: ...

    @property
    def finishing(self) -> bool:
        """Whether the worker is being drained."""


class UnderWay:
    """See the module. Belongs to one event loop."""

    def __init__(
        self,
        host: BodyHost,
        started: Started,
        start: int,
        held: Mapping[str, int | None],
        on_ended: Callable[[Ended], None],
        moved: Callable[[Mapping[str, int | None]], None],
        called: CalledParts,
    ) -> None:
        """
        Args:
            start: seqnum of its Started. held: its claim, as it is. moved, called: see `family.Family`.
        """
        self._called: Final = called
        self._host: Final = host
        self._started: Final = started
        self._start: Final = start
        self._held: Final = held
        self._on_ended: Final = on_ended
        self._moved: Final = moved
        self._outer: Final = asyncio.get_running_loop()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._transactions: dict[str, tuple[RunTransaction, ReadyTransaction]] = {}
        self._given_up: Final[set[asyncio.Task[None]]] = set()
        """Ends of transactions that are given up."""
        self._steps: dict[str, tuple[AnyStep, Gate]] = {}
        """The steps under way, by the keys of their calls."""
        self._ended_last: tuple[str, float] = "", 0.0
        """The `async def` step that ended last, and when."""

    @property
    def nothing(self) -> bool:
        """Whether no body runs; while the worker is being drained, whether no step does: transactions are run again."""
        return not (self.steps if self._host.finishing else self._tasks)

    @property
    def steps(self) -> list[str]:
        """Names of steps whose functions run: not of those that wait for a thread, or until the next attempt."""
        return [step.name for step, gate in self._steps.values() if gate.began]

    def steps_since(self, since_s: float) -> list[str]:
        """Return the names of `async def` steps whose functions run, or the one of them that ended last, at `since_s` or later."""
        running = [step.name for step, gate in self._steps.values() if gate.began and step.is_async]
        name, ended_s = self._ended_last
        return [name, *running] if name and ended_s >= since_s else running

    def runs(self, key: str) -> bool:
        """Whether a call's body does."""
        return key in self._tasks

    # -- bodies

    def begin(
        self,
        ask: Body,
        staged: StagedTransaction[Outcome] | None = None,
    ) -> None:
        """Run a body. `staged`: its store runs it already."""
        if self._host.finishing and staged is None:
            if isinstance(ask, RunStep):
                self._withdrawn(ask.key, ask.step)
            return
        if isinstance(ask, RunStep):
            self._steps[ask.key] = ask.step, Gate(lambda: self._host.finishing)
        self._tasks[ask.key] = self._outer.create_task(
            self._body(ask, staged), name=f"bokiflow body of {self._started.id}"
        )

    def withdraw(self) -> None:
        """Stop steps whose functions do not run: the worker finishes, so none of them begins any more."""
        assert self._host.finishing
        for key, (step, gate) in list(self._steps.items()):
            if not gate.began:
                self.stop(key)
                self._withdrawn(key, step)

    def _withdrawn(self, key: str, step: AnyStep) -> None:
        if step.how.at_most_once:
            self._on_ended(StepWithdrawn(key))

    def stop(self, key: str) -> None:
        """Nobody waits for a body any more."""
        self._host.locks.unwait(self._started.id, key)
        self._called.leave_all(key)
        task = self._tasks.pop(key, None)
        self._steps.pop(key, None)
        if task is not None:
            task.cancel()

    def ran(self, key: str) -> RunTransaction | None:
        """Return the transaction that wants to commit, once."""
        found = self._transactions.pop(key, None)
        return None if found is None else found[0]

    async def _body(self, ask: Body, staged: StagedTransaction[Outcome] | None) -> None:
        try:
            ended = await self._run(ask, staged)
        except NotBegun:
            assert isinstance(ask, RunStep)
            if self._tasks.get(ask.key) is asyncio.current_task():
                del self._tasks[ask.key], self._steps[ask.key]
                self._withdrawn(ask.key, ask.step)
            return
        except asyncio.CancelledError:
            if self._tasks.get(ask.key) is not asyncio.current_task():
                raise
            name = ask.step.name if isinstance(ask, RunStep) else ask.name
            error = RuntimeError(f"step {name!r} raised CancelledError, and nobody had cancelled it")
            ended = BodyEnded(ask.key, failed(error))
        except NonDeterminism as unfit:
            ended = BodyEnded(ask.key, failed(unfit), unfit=unfit)
        if self._tasks.get(ask.key) is asyncio.current_task():
            del self._tasks[ask.key]
            self._steps.pop(ask.key, None)
            if isinstance(ask, RunTransaction) and isinstance(ended, ReadyTransaction):
                self._transactions[ask.key] = ask, ended
            self._on_ended(ended)

    async def _run(self, ask: Body, staged: StagedTransaction[Outcome] | None) -> BodyEnded | ReadyTransaction | Ready:
        began_s, attempts, part = self._outer.time(), 1, None
        if isinstance(ask, RunStep):
            with self._host.spans.body(self._started.id, "step", ask.step.name, ask.key) as span:
                _, gate = self._steps[ask.key]
                how = (self._host.bodies, self._started.id, ask.names, gate, self._host.failed_attempts)
                outcome, attempts = await run_body(ask.step, ask.args, ask.options, *how)
                note(span, outcome)
            if ask.step.is_async:
                self._ended_last = ask.step.name, self._outer.time()
        elif isinstance(ask, RunTransaction):
            ran = await self._transact(ask, staged)
            if isinstance(ran, ReadyTransaction):
                return ran
            outcome, part = ran if isinstance(ran, FinishedPart) else (ran, None)
        else:
            found = await self._host.locks.look(ask, self._started.id, self.age)
            if not isinstance(found, Outcome):
                return found
            outcome = found
        return BodyEnded(ask.key, outcome, round((self._outer.time() - began_s) * 1_000), attempts, part)

    async def _transact(
        self, ask: RunTransaction, staged: StagedTransaction[Outcome] | None
    ) -> ReadyTransaction | FinishedPart | Outcome:
        attempts = Family(self._host, self._started, self.age, ask, self._held, self._moved, self._called)
        with self._host.spans.body(self._started.id, "transact", ask.name, ask.key) as span:
            ran = await transactional.run(ask, self._host.log, attempts, staged)
            note(span, ran if isinstance(ran, Outcome) else ran.outcome)
            return ran

    @property
    def age(self) -> int:
        """Where the root of its family began."""
        return self._started.age or self._start

    # -- the rest

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Does something that nothing depends on: whoever shortens the history next does it."""

        async def run() -> None:
            try:
                await work
            except BokiError as error:
                log.warning("a history is as long as it was", id=self._started.id, error=str(error))

        task = self._outer.create_task(run(), name=f"bokiflow upkeep of {self._started.id}")
        self._tasks[task.get_name()] = task
        task.add_done_callback(lambda done: self._tasks.pop(done.get_name(), None))

    def give_up(self, ran: ReadyTransaction) -> None:
        """End a transaction that wanted to commit. Unlike `later` it is done also if the workflow is stopped at once."""
        task = self._outer.create_task(transactional.end(ran), name="bokiflow given up")
        self._given_up.add(task)
        task.add_done_callback(self._given_up.discard)

    def stop_all(self) -> list[asyncio.Task[None]]:
        """Stop what the code wanted to happen. Return what ends now."""
        tasks, self._tasks = self._tasks, {}
        self._steps.clear()
        for task in tasks.values():
            task.cancel()
        for _, ran in self._transactions.values():
            self.give_up(ran)
        self._transactions.clear()
        self._host.locks.unwait_all(self._started.id)
        return [*tasks.values(), *self._given_up, *self._called.stop()]
