"""Calls that wait for the ends of workflows. One cursor follows all awaited workflows that run in other processes.

- A missing workflow (never started, or forgotten) is an error, unless the call waits for its start.
- A blocked workflow is an error, unless the call waits on: at once, or after `PATIENCE_S`, in which a deploy may resume it. A process that
  blocked the workflow itself knows the error, and fails its own calls at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Final, Literal, NamedTuple, TypeAlias

import boki
from boki_common.errors import BokiError, ClosedError
from bokiflow.errors import NoSuchWorkflow, ResultExpired, WorkflowBlocked
from bokiflow.history import inspection
from bokiflow.history.instance_state import InstanceState, state_after
from bokiflow.model.flow_events import PICKER, Ended
from bokilib.append.log import Log, Read
from bokilib.follow.follower import Follower
from bokilib.records import tags

SEQNUM_END: Final = 2**63
PATIENCE_S: Final = 5.0
"""Seconds for which a workflow may be blocked before a call fails, by default."""

OnBlocked: TypeAlias = Literal["raise", "wait"] | None
"""The reaction of a call to a blocked workflow: raise at once, wait without a limit, or (None) raise after `PATIENCE_S`."""
OnMissing: TypeAlias = Literal["raise", "wait"]
"""The reaction of a call to a missing workflow: raise, or wait until it is started."""
LEFT: Final = (
    "the Flow or Worker of this call was left, so it waits for no result; the workflow is not affected: "
    "get its result from another Flow or Worker"
)
NOT_THERE: Final = "was it started in this book, and is it kept still?"


class _Waiting(NamedTuple):
    """A call that waits.

    Attributes:
        start: the seqnum of the start of the workflow; 0 means any workflow with the id.
        future: resolves to the end.
        blocked: the reaction to a blocked workflow.
        missing: the reaction to a missing workflow.
    """

    start: int
    future: asyncio.Future[Ended]
    blocked: OnBlocked
    missing: OnMissing

    def means(self, start: int) -> bool:
        """Return True if the call waits for the workflow with this start."""
        return self.start in (0, start)


class _Blocked(NamedTuple):
    """A blocked workflow.

    Attributes:
        claim: the seqnum of the claim that blocks it.
        until_s: the loop's time at which calls without a reaction fail.
        timer: the timer for that time.
    """

    claim: int
    until_s: float
    timer: asyncio.TimerHandle


class Results:
    """The calls of one process that wait for ends of workflows."""

    def __init__(self, log: Log) -> None:
        self._log: Final = log
        self._follower: Final = Follower(log, self._lost)
        self._waiting: dict[str, list[_Waiting]] = {}
        self._followed: dict[str, None] = {}
        self._looking: dict[asyncio.Task[None], None] = {}
        self._failed: BaseException | None = None
        self._blocked: dict[str, _Blocked] = {}

    async def __aenter__(self) -> Results:
        self._failed = None  # it may have been left before
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop following workflows. Calls that wait, and later ones, fail with ClosedError."""
        self.failed_all(self._failed or ClosedError(LEFT))
        for task in list(self._looking):
            task.cancel()
        await self._follower.__aexit__(kind, error, trace)

    def wait(
        self, id: str, start: int, *, follow: bool, blocked: OnBlocked = "wait", missing: OnMissing = "wait"
    ) -> asyncio.Future[Ended]:
        """Return a future of the end of a workflow.

        Args:
            id: the workflow.
            start: the seqnum of its start; 0 means any workflow with the id.
            follow: the workflow runs in another process, so its stream is followed; otherwise this process calls `ended`.
            blocked: the reaction to a blocked workflow.
            missing: the reaction to a missing workflow.
        """
        future: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        if self._failed is not None:
            future.set_exception(self._failed)
            return future
        self._waiting.setdefault(id, []).append(_Waiting(start, future, blocked, missing))
        future.add_done_callback(partial(self._given_up, id))
        if id in self._followed or (follow and not start and missing == "raise"):
            self._look(id)  # the cursor does not read old records again, and a missing workflow has none
        if follow:
            self.follow(id, start)
        return future

    def _given_up(self, id: str, future: asyncio.Future[Ended]) -> None:
        """Forget a call that was cancelled, and unfollow its workflow if no other call waits for it."""
        if future.cancelled():
            self._take(id, lambda one: one.future is future)

    def follow(self, id: str, start: int) -> None:
        """Follow an awaited workflow that runs in another process from now on."""
        if id in self._waiting and id not in self._followed:
            self._followed[id] = None
            self._follower.add(tags.flow_own(id), max(1, start), lambda item: self._read(id, item))

    def follow_all(self) -> None:
        """Follow all awaited workflows, since none of them runs here any more."""
        for id in list(self._waiting):
            self.follow(id, 1)

    def _read(self, id: str, item: Read | boki.Gap | BokiError) -> None:
        if isinstance(item, Read):
            state = state_after(item.record.seqnum, PICKER.of(item.record.seqnum, item.envelope, about=id))
            if state is not None:
                self._resolve(id, state)
        elif isinstance(item, boki.Gap):
            self._look(id)
        else:
            self.failed(id, item)

    def _resolve(self, id: str, state: InstanceState) -> None:
        if state.ended is not None and not state.large:
            self.ended(id, state.ended)
        elif state.ended is not None or state.blocked:  # the first records that the cursor reads may be old
            self._look(id)
        else:
            self._lives(id, state)

    def _lives(self, id: str, state: InstanceState) -> None:
        """Take note of the state of a workflow that has not ended, and fail calls that do not wait for a blocked one."""
        if state.start:
            self._expired(id, state.start)
        if not state.blocked or id not in self._waiting:
            self._goes_on(id)
            return
        loop = asyncio.get_running_loop()
        known = self._blocked.get(id)
        if known is None or known.claim != state.claim:
            self._goes_on(id)
            timer = loop.call_later(PATIENCE_S, self._look, id)
            self._blocked[id] = known = _Blocked(state.claim, loop.time() + PATIENCE_S, timer)
        patient = loop.time() < known.until_s
        self._tell(id, state, lambda one: one.blocked == "raise" or not (patient or one.blocked))

    def _tell(self, id: str, state: InstanceState, which: Callable[[_Waiting], bool]) -> None:
        """Fail calls for a workflow that is blocked."""
        for one in self._take(id, lambda one: which(one) and one.means(state.start)):
            reason = state.blocked.partition("\n")[0]  # below it is the stack
            error = WorkflowBlocked(
                f"workflow {id!r} is blocked: {reason}; it goes on when a worker with code that fits begins, or after resume()",
                id=id,
                found=state.blocked,
            )
            _fail(one, error)

    def _goes_on(self, id: str) -> None:
        """Stop the timer of a workflow that is not blocked any more, or not awaited."""
        known = self._blocked.pop(id, None)
        if known is not None:
            known.timer.cancel()

    def _look(self, id: str) -> None:
        """Start a task that reads the newest state of a workflow, because records may be trimmed or the workflow missing."""

        async def look() -> None:
            try:
                state = await inspection.newest(self._log, id, consistency="linearizable")
                ended = None if state is None else await inspection.outcome_of(self._log, id, state)
            except BokiError as error:
                self.failed(id, error)
                return
            if state is None:
                self._expired(id, SEQNUM_END)
                self._missing(id)
            elif ended is not None:
                self.ended(id, ended)
            else:
                self._lives(id, state)

        task = asyncio.get_running_loop().create_task(look(), name="bokiflow results")
        self._looking[task] = None
        task.add_done_callback(lambda done: self._looking.pop(done, None))

    def _missing(self, id: str) -> None:
        for one in self._take(id, lambda one: not one.start and one.missing == "raise"):
            _fail(one, NoSuchWorkflow(f"there is no workflow {id!r}: {NOT_THERE}", id=id))

    def _expired(self, id: str, start: int) -> None:
        """Fail the calls that wait for workflows with this id that started before `start`: their results are not kept any more."""
        for one in self._take(id, lambda one: 0 < one.start < start):
            _fail(one, ResultExpired(f"workflow {id!r} ended, and its result is not kept any more", id=id))

    def ended(self, id: str, ended: Ended) -> None:
        """Resolve the calls that wait for a workflow that ended."""
        self._expired(id, ended.start)
        for one in self._take(id, lambda one: one.means(ended.start)):
            if not one.future.done():
                one.future.set_result(ended)

    def blocked_here(self, id: str, error: BaseException) -> None:
        """Fail the calls for a workflow that this process blocked, and follow it for the calls that wait on."""
        for one in self._take(id, lambda one: one.blocked != "wait"):
            _fail(one, error)
        self.follow(id, 1)

    def _lost(self, error: Exception) -> None:
        """Fail the calls for workflows that are followed, since some are not followed any more. Later calls follow them again."""
        for id in list(self._followed):
            self.failed(id, error)

    def failed(self, id: str, error: BaseException) -> None:
        """Fail the calls for a workflow whose end cannot be read."""
        for one in self._take(id, lambda _: True):
            _fail(one, error)

    def failed_all(self, error: BaseException) -> None:
        """Fail all calls, also later ones, since this process cannot continue."""
        self._failed = error
        for id in list(self._waiting):
            self.failed(id, error)

    def _take(self, id: str, which: Callable[[_Waiting], bool]) -> list[_Waiting]:
        waiting = self._waiting.get(id, [])
        taken = [one for one in waiting if which(one)]
        left = [one for one in waiting if not which(one)]
        if left:
            self._waiting[id] = left
        elif waiting:
            del self._waiting[id]
        if not left:
            self._goes_on(id)
        if not left and self._followed.pop(id, "") is None:
            self._follower.discard(tags.flow_own(id))
        return taken


def _fail(one: _Waiting, error: BaseException) -> None:
    if not one.future.done():
        one.future.set_exception(error)
