"""The tasks that run for one workflow beside its code: bodies of steps and transactions, and upkeep.

A body that ends is put into the workflow's inbox; one that is stopped is not. While the worker is drained (`Worker.drain`), or the workflow
is about to be blocked, functions of steps that run may end. No others begin, neither those that wait for a thread nor those between two
attempts: the next worker begins them. A step that runs at most once may be recorded as begun without having begun: the inbox gets
`StepWithdrawn` for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias

from boki_common.errors import BokiError
from boki_common.interruption import interrupted
from boki_common.logs import get_logger
from bokiflow.errors import NonDeterminism
from bokiflow.execute.body import Gate, NotBegun, run_body
from bokiflow.execute.inbox import BodyEnded, StepWithdrawn
from bokiflow.execute.traces import note
from bokiflow.execute.transaction_children import CalledParts, TransactionChildren
from bokiflow.execute.worker_host import WorkerHost
from bokiflow.locks.lock_room import Ready
from bokiflow.model.flow_events import Started
from bokiflow.model.outcomes import Outcome, failed
from bokiflow.runtime import transactional
from bokiflow.runtime.calls import AnyStep
from bokiflow.runtime.commands import RunStep, TakeLock
from bokiflow.runtime.transactional import FinishedPart, ReadyTransaction, RunTransaction, StagedTransaction
from bokilib.stacks import described

log = get_logger(__name__)

Body: TypeAlias = RunStep | RunTransaction | TakeLock


class RunningTasks:
    """The tasks of one workflow. Belongs to one event loop."""

    def __init__(
        self,
        host: WorkerHost,
        started: Started,
        start: int,
        held: Mapping[str, int | None],
        on_ended: Callable[[BodyEnded | StepWithdrawn | ReadyTransaction | Ready], None],
        on_failed: Callable[[Exception], None],
        moved: Callable[[Mapping[str, int | None]], None],
        called: CalledParts,
    ) -> None:
        """Begin with no tasks.

        Args:
            host: the worker.
            started: how the workflow began.
            start: the seqnum of its start.
            held: see `TransactionChildren`.
            on_ended: called with what goes to the inbox.
            on_failed: called with an error that is no outcome: of the log, or a defect.
            moved: see `TransactionChildren`.
            called: see `TransactionChildren`.
        """
        self._called: Final = called
        self._host: Final = host
        self._started: Final = started
        self._start: Final = start
        self._held: Final = held
        self._on_ended: Final = on_ended
        self._on_failed: Final = on_failed
        self._moved: Final = moved
        self._loop: Final = asyncio.get_running_loop()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._transactions: dict[str, tuple[RunTransaction, ReadyTransaction]] = {}
        self._given_up: Final[set[asyncio.Task[None]]] = set()
        """Tasks that end transactions which do not commit."""
        self._steps: dict[str, tuple[AnyStep, Gate]] = {}
        """The steps of the tasks, by the keys of their calls."""
        self._finishing = False
        self._ended_last: tuple[str, float] = "", 0.0
        """The `async def` step that ended last, and when."""

    @property
    def idle(self) -> bool:
        """True if no body runs. While the worker is drained, True if no step does: its transactions are run again by the next worker."""
        return not (self.steps if self._host.finishing else self._tasks)

    @property
    def steps(self) -> list[str]:
        """Names of steps whose functions run: neither waiting for a thread, nor between two attempts."""
        return [step.name for step, gate in self._steps.values() if gate.began]

    def steps_since(self, since_s: float) -> list[str]:
        """Return the names of `async def` steps whose functions run, or the one of them that ended last, at `since_s` or later."""
        running = [step.name for step, gate in self._steps.values() if gate.began and step.is_async]
        name, ended_s = self._ended_last
        return [name, *running] if name and ended_s >= since_s else running

    def runs(self, key: str) -> bool:
        """Return True if the body of a call runs."""
        return key in self._tasks

    # -- bodies

    def begin(
        self,
        command: Body,
        staged: StagedTransaction[Outcome] | None = None,
    ) -> None:
        """Run a body. `staged` is the transaction that its store runs already."""
        if self._is_finishing() and staged is None:
            if isinstance(command, RunStep):
                self._withdrawn(command.key, command.step)
            return
        if isinstance(command, RunStep):
            self._steps[command.key] = command.step, Gate(self._is_finishing)
        name = command.step.name if isinstance(command, RunStep) else command.name
        self._tasks[command.key] = self._loop.create_task(self._body(command, staged), name=name)

    def _is_finishing(self) -> bool:
        return self._finishing or self._host.finishing

    def finish(self) -> None:
        """Let functions of steps that run end, and begin no others from now on."""
        self._finishing = True
        for key, (step, gate) in list(self._steps.items()):
            if not gate.began:
                self.stop(key)
                self._withdrawn(key, step)

    def _withdrawn(self, key: str, step: AnyStep) -> None:
        if step.how.at_most_once:
            self._on_ended(StepWithdrawn(key))

    def stop(self, key: str) -> None:
        """Stop a body that the code does not wait for any more."""
        self._host.locks.unwait(self._started.id, key)
        self._called.leave_all(key)
        task = self._tasks.pop(key, None)
        self._steps.pop(key, None)
        if task is not None:
            self._cancel(task)

    def _cancel(self, task: asyncio.Task[None]) -> None:
        self._host.cancelled.cancel(task, task.get_name(), self._started.id)

    def ran(self, key: str) -> RunTransaction | None:
        """Return the command of a transaction that is ready to commit, and forget it; None if there is none."""
        found = self._transactions.pop(key, None)
        return None if found is None else found[0]

    async def _body(self, command: Body, staged: StagedTransaction[Outcome] | None) -> None:
        this = asyncio.current_task()
        try:
            ended = await self._run(command, staged)
        except NotBegun:
            assert isinstance(command, RunStep)
            if self._tasks.get(command.key) is this:
                del self._tasks[command.key], self._steps[command.key]
                self._withdrawn(command.key, command.step)
            return
        except asyncio.CancelledError:
            if self._tasks.get(command.key) is not this:
                raise
            name = command.step.name if isinstance(command, RunStep) else command.name
            error = RuntimeError(f"step {name!r} raised CancelledError, and nobody had cancelled it")
            ended = BodyEnded(command.key, failed(error))
        except NonDeterminism as unfit:
            ended = BodyEnded(command.key, failed(unfit), unfit=unfit)
        except GeneratorExit:
            raise  # this task is closed where its loop ended; a body's own GeneratorExit is an outcome
        except BaseException as error:
            if interrupted(error):
                raise
            if self._tasks.get(command.key) is this:
                self._on_failed(
                    error if isinstance(error, Exception) else RuntimeError(f"a task raised {described(error)}")
                )
            return
        if self._tasks.get(command.key) is this:
            del self._tasks[command.key]
            self._steps.pop(command.key, None)
            if isinstance(command, RunTransaction) and isinstance(ended, ReadyTransaction):
                self._transactions[command.key] = command, ended
            self._on_ended(ended)

    async def _run(
        self, command: Body, staged: StagedTransaction[Outcome] | None
    ) -> BodyEnded | ReadyTransaction | Ready:
        began_s, attempts, part = self._loop.time(), 1, None
        if isinstance(command, RunStep):
            with self._host.spans.body(self._started.id, "step", command.step.name, command.key) as span:
                _, gate = self._steps[command.key]
                how = (self._host.bodies, self._started.id, command.names, gate, self._host.failed_attempts)
                outcome, attempts = await run_body(command.step, command.args, command.options, *how)
                note(span, outcome)
            if command.step.is_async:
                self._ended_last = command.step.name, self._loop.time()
        elif isinstance(command, RunTransaction):
            ran = await self._transact(command, staged)
            if isinstance(ran, ReadyTransaction):
                return ran
            outcome, part = ran if isinstance(ran, FinishedPart) else (ran, None)
        else:
            found = await self._host.locks.look(command, self._started.id, self.age)
            if not isinstance(found, Outcome):
                return found
            outcome = found
        return BodyEnded(command.key, outcome, round((self._loop.time() - began_s) * 1_000), attempts, part)

    async def _transact(
        self, command: RunTransaction, staged: StagedTransaction[Outcome] | None
    ) -> ReadyTransaction | FinishedPart | Outcome:
        attempts = TransactionChildren(
            self._host, self._started, self.age, command, self._held, self._moved, self._called
        )
        with self._host.spans.body(self._started.id, "transact", command.name, command.key) as span:
            ran = await transactional.run(command, self._host.log, attempts, staged)
            await self._called.decided(command.key)
            note(span, ran if isinstance(ran, Outcome) else ran.outcome)
            return ran

    @property
    def age(self) -> int:
        """The seqnum at which the root of its family began."""
        return self._started.age or self._start

    # -- the rest

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Run upkeep of the history in the background. A failure is logged: the next upkeep repeats it."""

        async def run() -> None:
            try:
                await work
            except BokiError as error:
                log.warning("history not trimmed yet", id=self._started.id, error=str(error))

        task = self._loop.create_task(run(), name=f"bokiflow upkeep of {self._started.id}")
        self._tasks[task.get_name()] = task
        task.add_done_callback(lambda done: self._tasks.pop(done.get_name(), None))

    def give_up(self, ran: ReadyTransaction) -> None:
        """End a transaction that does not commit. Unlike `later`, this runs to its end also if the workflow is stopped."""
        task = self._loop.create_task(transactional.end(ran), name="bokiflow given up")
        self._given_up.add(task)
        task.add_done_callback(self._given_up.discard)

    def stop_all(self) -> list[asyncio.Task[None]]:
        """Stop everything; return the tasks that are ending."""
        tasks, self._tasks = self._tasks, {}
        self._steps.clear()
        for task in tasks.values():
            self._cancel(task)
        for _, ran in self._transactions.values():
            self.give_up(ran)
        self._transactions.clear()
        self._host.locks.unwait_all(self._started.id)
        return [*tasks.values(), *self._given_up, *self._called.stop()]
