"""The app: workflows, steps and schedules of a program, by name.

app = App("shop")

@app.step(retry=Retry(attempts=5))
async def charge(card: str, cents: int) -> str: ...

@app.workflow
async def checkout(order: str) -> str: ...

async with Worker(app, client.book("shop")) as worker: ...
"""

from __future__ import annotations

import importlib
import inspect
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import ModuleType
from typing import Any, Final, ParamSpec, TypeVar, cast, overload

from boki_common.errors import InvalidArgument, UsageError
from bokiflow.client import debounce, schedules
from bokiflow.client.schedules import Plan
from bokiflow.errors import NotRegistered
from bokiflow.model.cron import Missed, Timing
from bokiflow.model.records import check_text, check_timeout_s
from bokiflow.runtime.calls import ONCE, Call, Retry, Step, StepOptions, SyncStep, Workflow

P = ParamSpec("P")
R = TypeVar("R")

RESERVED: Final = "boki."


class App:
    """The workflows, steps and schedules that a program defines. All workers with an app of one name share the workflows of a book.

    Attributes:
        group: the name of the app.
        plans: the schedules, by name.
        changes: the number of definitions of workflows and steps.
    """

    def __init__(self, group: str, *, replace: bool = False) -> None:
        """Create an app without workflows.

        Args:
            group: the name of the app, without "/".
            replace: a workflow, step or schedule may be defined again under its name, for notebooks. Running workflows keep the code that
                they started with; blocked workflows are retried.

        Raises:
            InvalidArgument: the name is empty or contains "/".
        """
        if not check_text("an app's name", group) or "/" in group:
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
        """Define a step: its body runs at least once, and its outcome is recorded once.

        Args:
            function: the body, a function or a coroutine function.
            name: the name of the step, by default the function's. Histories have it, so do not change it.
            retry: when to retry attempts that raise.
            timeout_s: seconds for one attempt.
            at_most_once: the body never runs again: after a crash the step raises StepInterrupted. This costs one more record.

        Raises:
            InvalidArgument: the time-out is not positive, `at_most_once` comes with retries, or a step has this name already.
        """
        check_timeout_s(timeout_s)
        if not isinstance(retry, Retry):
            raise InvalidArgument(f"expected bokiflow.Retry(...), found {retry!r:.80}", found=retry)
        if name is not None:
            check_text("the name of a step", name)
        if at_most_once and retry.attempts > 1:
            raise InvalidArgument("expected either at_most_once or retries, found both")
        maker = _StepMaker(self, name, StepOptions(retry, timeout_s, at_most_once))
        return maker if function is None else maker(function)

    def new_step_name(self, name: str) -> str:
        """Register the name of a step.

        Raises:
            InvalidArgument: a step has this name already.
        """
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
        """Define a workflow: a durable function that ends once, even if processes that run it die.

        Args:
            function: the coroutine function.
            name: the name of the workflow, by default the function's. Workers find the code of started workflows by it.
            version: your name for this version of the code, recorded with each start.

        Raises:
            InvalidArgument: the name begins with "boki.", or a workflow has it already.
        """
        if name is not None:
            check_text("the name of a workflow", name)
        check_text("a version", version)

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
        """Define a schedule, which starts a workflow repeatedly; the workers run it, once for all of them.

        A worker sets the schedule when it begins. A worker that runs already sets a new or changed schedule within a third of its lease.

        Args:
            name: the name of the schedule, without "/".
            call: the workflow to start, with its arguments.
            cron: the times, as five fields; or use `every_s`.
            every_s: the interval in seconds, counted from 1970 UTC.
            timezone: the IANA time zone of `cron`.
            missed: how to treat firings that are more than `late_s` late because no worker ran: "skip" them, start the "last" one, or
                start "all".
            late_s: seconds after which a firing counts as missed.
            attributes: up to 8 attributes to find the started workflows by. `{due}` in a value is the time of the firing in the time
                zone, a `datetime` for `str.format`: `{"day": "{due:%Y-%m-%d}"}`.

        Raises:
            InvalidArgument: an argument is not valid, or a schedule has this name already.
        """
        if check_text("a schedule's name", name) in self.plans and not self._replace:
            raise InvalidArgument(f"there is a schedule {name!r} already", found=name)
        self.plans[name] = schedules.planned(
            name, call, Timing(cron, every_s, timezone, missed, late_s), attributes or {}
        )

    @property
    def names(self) -> list[str]:
        """The names of this program's workflows, without Boki's own."""
        return sorted(name for name in self._workflows if not name.startswith(RESERVED))

    def has(self, name: str) -> bool:
        """Return True if this program has a workflow of that name."""
        return name in self._workflows

    def find(self, name: str) -> Workflow[..., Any]:
        """Return a workflow of this program.

        Raises:
            NotRegistered: the program has no workflow of this name.
        """
        found = self._workflows.get(name)
        if found is None:
            known = self.names
            raise NotRegistered(
                f"this program has no workflow {name!r}, it has {known}: import the module that defines it",
                found=name,
                expected=known,
            )
        return found


class _StepMaker:
    """The decorator that `@app.step(...)` returns."""

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


def named_app(name: str) -> App:
    """Import the module of an app, and return the app.

    Raises:
        UsageError: the module cannot be found, its import raises any error, or it has no app of that name.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise UsageError(f"expected MODULE:NAME of an app, such as shop.flows:app, found {name!r}", found=name)
    found: object = _imported(module, name)
    try:
        for part in attribute.split("."):
            found = getattr(found, part)
    except AttributeError as fault:
        raise UsageError(f"the app {name!r} cannot be found from here: {fault}", found=name) from fault
    if not isinstance(found, App):
        raise UsageError(f"expected a bokiflow.App under {name!r}, found {type(found).__name__}", found=name)
    return found


def _imported(module: str, name: str) -> ModuleType:
    """Import the module of an app. Any error that its code raises, also SystemExit, is a fault of the user's program."""
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as fault:
        if isinstance(fault, ModuleNotFoundError) and fault.name and f"{module}.".startswith(f"{fault.name}."):
            raise UsageError(f"the app {name!r} cannot be found from here: {fault}", found=name) from fault
        text = fault.msg if isinstance(fault, SyntaxError) else str(fault)
        raise UsageError(
            f"importing {module!r} failed: {type(fault).__name__}: {text}{_place(fault, module)}", found=name
        ) from fault


def _place(fault: BaseException, module: str) -> str:
    """Return where the code of a module, or of its package, raised an error: " (FILE, line N)"; "" if that is not known."""
    if isinstance(fault, SyntaxError) and fault.filename:
        return f" ({fault.filename}, line {fault.lineno})"
    package, place = module.partition(".")[0], ""
    for frame, line in traceback.walk_tb(fault.__traceback__):
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == package:
            place = f" ({frame.f_code.co_filename}, line {line})"
    return place
