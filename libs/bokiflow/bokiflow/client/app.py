"""What a program has of workflows and steps, by name.

app = App("shop")

@app.step(retry=Retry(attempts=5))
async def charge(card: str, cents: int) -> str: ...

@app.workflow
async def checkout(order: str) -> str: ...

async with Worker(app, client.book("shop")) as worker: ...
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, ParamSpec, TypeVar, cast, overload

from boki_common.errors import InvalidArgument
from bokiflow.client import debounce, schedules
from bokiflow.client.schedules import Plan
from bokiflow.errors import NotRegistered
from bokiflow.model.cron import Missed, Timing
from bokiflow.runtime.calls import Call, Step, StepOptions, SyncStep, Workflow
from bokiflow.runtime.retry_rules import ONCE, Retry

P = ParamSpec("P")
R = TypeVar("R")

RESERVED: Final = "boki."


class App:
    """See the module. Workers of one name share its workflows.

    Attributes:
        group: the name. plans: schedules, by their names. changes: how often a workflow or a step was defined.
    """

    def __init__(self, group: str, *, replace: bool = False) -> None:
        """
        Args:
            replace: a workflow, a step or a schedule may be defined again, and takes the place of the one that has its name: for
                notebooks. What runs goes on with the code with which it began; what is blocked is tried again.
        """
        if not group or "/" in group:
            raise InvalidArgument(f"expected a name without '/', found {group!r}", found=group)
        self.group: Final = group
        self.changes = 0
        self._replace: Final = replace
        own = (schedules.workflow(self), debounce.workflow(self))
        self._workflows: dict[str, Workflow[..., Any]] = {one.name: one for one in own}
        self.plans: Final[dict[str, Plan]] = {}
        self._steps: dict[str, None] = {}

    # -- steps

    @overload
    def step(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...  # type: ignore[overload-overlap]  # a coroutine function is a function too: the first that fits counts

    @overload
    def step(self, function: Callable[P, R], /) -> SyncStep[P, R]: ...

    @overload
    def step(
        self,
        /,
        *,
        name: str | None = None,
        retry: Retry = ONCE,
        timeout_s: float | None = None,
        at_most_once: bool = False,
    ) -> _StepMaker: ...

    def step(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        retry: Retry = ONCE,
        timeout_s: float | None = None,
        at_most_once: bool = False,
    ) -> Any:
        """A step: its body happens at least once, its outcome is kept once for ever.

        Args:
            name: by default the function's; histories name it, so it should stay.
            retry: of attempts that raise. timeout_s: of one attempt.
            at_most_once: the body is never begun again: after a crash it raises StepInterrupted. One record more.
        """
        if timeout_s is not None and timeout_s <= 0:
            raise InvalidArgument(f"expected a timeout of more than 0 s, found {timeout_s}")
        if at_most_once and retry.attempts > 1:
            raise InvalidArgument("expected either at_most_once or retries, found both")
        maker = _StepMaker(self, name, StepOptions(retry, timeout_s, at_most_once))
        return maker if function is None else maker(function)

    def new_step_name(self, name: str) -> str:
        """Raises InvalidArgument: there is one."""
        self.changes += 1
        if name in self._steps and not self._replace:
            raise InvalidArgument(f"there is a step {name!r} already: give one of them a name=", found=name)
        self._steps[name] = None
        return name

    # -- workflows

    @overload
    def workflow(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...

    @overload
    def workflow(
        self, /, *, name: str | None = None, version: str = ""
    ) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Workflow[P, R]]: ...

    def workflow(
        self, function: Callable[..., Any] | None = None, /, *, name: str | None = None, version: str = ""
    ) -> Any:
        """A durable function: it finishes once, whatever happens to the processes that run it.

        Args:
            name: by default the function's; what was started is found by it.
            version: as you call this code; it is kept with what it starts.
        """

        def make(function: Callable[..., Coroutine[Any, Any, Any]]) -> Workflow[..., Any]:
            chosen = name or function.__name__
            if chosen.startswith(RESERVED):
                raise InvalidArgument(
                    f"names that begin with {RESERVED!r} are Boki's own, found {chosen!r}", found=chosen
                )
            self.changes += 1
            if chosen in self._workflows and not self._replace:
                raise InvalidArgument(f"there is a workflow {chosen!r} already: give one of them a name=", found=chosen)
            made = self._workflows[chosen] = Workflow(function, chosen, version)
            return made

        return make if function is None else make(function)

    def schedule(
        self,
        name: str,
        call: Call[Any],
        *,
        cron: str = "",
        every_s: float = 0.0,
        timezone: str = "UTC",
        missed: Missed = "last",
        late_s: float = 60.0,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        """Start a workflow again and again: the workers keep the schedule, once for all of them.

        A worker sets it when it begins. One that runs already sets it within a third of its lease, as one that is defined again.

        Args:
            cron: five fields; or `every_s`, counted from 1970 UTC. timezone: of IANA, for `cron`.
            missed: of what is more than `late_s` late, since no worker was there: "skip" all, do the "last" one, or "all".
            attributes: up to 8, by which what is started can be found. `{due}` in a value is the time of the firing in the time zone, a
                `datetime` as `str.format` has it: `{"day": "{due:%Y-%m-%d}"}`.

        Raises:
            InvalidArgument: also if there is one of this name.
        """
        if name in self.plans and not self._replace:
            raise InvalidArgument(f"there is a schedule {name!r} already", found=name)
        self.plans[name] = schedules.planned(
            name, call, Timing(cron, every_s, timezone, missed, late_s), attributes or {}
        )

    def has(self, name: str) -> bool:
        """Return True if this program has a workflow of that name."""
        return name in self._workflows

    def find(self, name: str) -> Workflow[..., Any]:
        """A workflow of this program. Raises NotRegistered."""
        found = self._workflows.get(name)
        if found is None:
            known = sorted(name for name in self._workflows if not name.startswith(RESERVED))
            raise NotRegistered(
                f"this program has no workflow {name!r}, it has {known}: import the module that defines it",
                found=name,
                expected=known,
            )
        return found


class _StepMaker:
    """`@app.step(...)`."""

    def __init__(self, app: App, name: str | None, how: StepOptions) -> None:
        self._app = app
        self._name = name
        self._how = how

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...  # type: ignore[overload-overlap]  # as above

    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncStep[P, R]: ...

    def __call__(self, function: Callable[..., Any], /) -> Any:
        name = self._app.new_step_name(self._name or function.__name__)
        if inspect.iscoroutinefunction(function):
            return Step(cast(Callable[..., Awaitable[Any]], function), name, self._how)
        return SyncStep(function, name, self._how)
