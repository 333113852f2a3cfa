"""Workflows and steps as users define and call them: `app.workflow`, `app.step`. A call has the types of its function.

Outside of workflows, and inside of steps, a step is the function that it was made of. In a workflow, its body runs outside, and its
outcome is in the log. A workflow that a workflow awaits is its child; `call` makes what is started from outside.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from functools import partial
from typing import (
    Any,
    Final,
    ForwardRef,
    Generic,
    Literal,
    NamedTuple,
    Never,
    NoReturn,
    ParamSpec,
    Protocol,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
)

from boki_common.errors import InvalidArgument
from bokiflow.errors import NotInWorkflow
from bokiflow.model.json_values import as_json
from bokiflow.runtime import flow_loop
from bokiflow.runtime.retry_rules import ONCE, Retry
from bokilib.errors import NotEncodable
from bokilib.records.codec import Json, check_type, copy_json, from_json

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Signature:
    """What a function takes and gives, as JSON and as its types."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._signature: Final = inspect.signature(function)
        self._function: Final = function
        self._hints: dict[str, Any] | None = None

    def _kinds(self) -> dict[str, Any]:
        if self._hints is None:  # not before it is called: its module may define the types further below
            found = inspect.get_annotations(self._function, eval_str=True)
            self._hints = {name: _without_json(kind) for name, kind in found.items()}
        return self._hints

    def encode(self, args: tuple[Any, ...], options: Mapping[str, Any]) -> Json:
        """Arguments as JSON. Raises InvalidArgument: they are not its arguments; NotEncodable."""
        try:
            self._signature.bind(*args, **options)
        except TypeError as fault:
            raise InvalidArgument(f"{self._function.__qualname__}{self._signature}: {fault}") from fault
        return [[as_json(one) for one in args], {name: as_json(one) for name, one in options.items()}]

    def decode(self, stored: Any) -> tuple[list[Any], dict[str, Any]]:
        """The arguments, of the types that the function names. Raises NotEncodable: they do not fit any more."""
        try:
            bound = self._signature.bind(*stored[0], **stored[1])
        except (TypeError, LookupError) as fault:
            raise NotEncodable(
                f"{self._function.__qualname__}{self._signature} was started with other arguments: {fault}; keep its parameters, "
                "or give new ones a default"
            ) from fault
        kinds = self._kinds()
        for name, value in bound.arguments.items():
            kind = kinds.get(name, Any)
            parameter = self._signature.parameters[name]
            if parameter.kind is parameter.VAR_POSITIONAL:
                bound.arguments[name] = tuple(_typed(kind, one) for one in value)
            elif parameter.kind is parameter.VAR_KEYWORD:
                bound.arguments[name] = {key: _typed(kind, one) for key, one in value.items()}
            else:
                bound.arguments[name] = _typed(kind, value)
        return list(bound.args), dict(bound.kwargs)

    def result(self, value: Json) -> Any:
        """Return what the function returned, of its type and shared with nothing. Raises NotEncodable."""
        return _typed(self._kinds().get("return", Any), value)

    def check(self, *, arguments: bool) -> None:
        """Check that JSON can come back as the types that the function names, as far as they can be looked up already.

        Args:
            arguments: not only its result, but its parameters too: those of a step are passed as they are.

        Raises:
            InvalidArgument: one of them cannot.
        """
        try:
            kinds = self._kinds()
        except (NameError, AttributeError):  # defined further below in its module: an error of the first call, then
            return
        for name, kind in kinds.items():
            known = kind is inspect.Parameter.empty or kind is None or kind is object or kind in (NoReturn, Never)
            if not known and (arguments or name == "return"):
                what = "the result" if name == "return" else f"parameter {name!r}"
                check_type(kind, f"{what} of {self._function.__qualname__}")


def names_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the names of the module that a function is defined in, under its decorators and `functools.partial`."""
    while isinstance(function, partial):
        function = function.func
    names: Mapping[str, Any] = getattr(inspect.unwrap(function), "__globals__", {})
    return names


def _typed(kind: Any, value: Json) -> Any:
    if kind is Any or kind is object or kind is inspect.Parameter.empty:
        return copy_json(value)
    if kind is None or kind is type(None):
        return None
    return from_json(kind, value)


def _without_json(kind: Any) -> Any:
    """The kind with Any for `Json`, which any JSON is, and which names itself as text."""
    if isinstance(kind, str | ForwardRef):
        return Any
    if get_origin(kind) is Literal:
        return kind
    args = get_args(kind)
    changed = tuple(_without_json(one) for one in args)
    if changed == args:
        return kind
    origin = get_origin(kind)
    return Any if isinstance(kind, types.UnionType) or origin is Union else origin[changed]  # of `Json | …`, anything


class StepOptions(NamedTuple):
    """How a step runs. `timeout_s`: of one attempt. `at_most_once`: never again after a crash, one record more."""

    retry: Retry = ONCE
    timeout_s: float | None = None
    at_most_once: bool = False


class Context(Protocol):
    """What a workflow's code calls: the instance it belongs to."""

    async def run_step(self, step: AnyStep, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """The outcome of a step."""

    async def run_child(self, workflow: Workflow[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """The outcome of a child."""


class Registry(Protocol):
    """Workflows of a program, by name: an `App`."""

    def find(self, name: str) -> Workflow[..., Any]:
        """Raises NotRegistered."""


class Caller(Protocol):
    """What the body of a transaction calls workflows through."""

    async def run_child(self, workflow: Workflow[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """The outcome of a child that is a part of the transaction."""


IN_TRANSACTION: Final[ContextVar[Caller | None]] = ContextVar("bokiflow transaction", default=None)
"""Whose body this is."""


def context() -> Context | None:
    """The workflow whose code calls this; None elsewhere."""
    loop = flow_loop.current()
    return None if loop is None else cast(Context, loop.owner)


class AnyStep:
    """What both kinds of steps are.

    Attributes:
        names: of the module where classes of its errors have their names: that of its function, or of a function that this one calls.
    """

    def __init__(
        self, function: Callable[..., Any], name: str, how: StepOptions, names: Mapping[str, Any] | None = None
    ) -> None:
        self.function: Final = function
        self.names: Final = names_of(function) if names is None else names
        self.name: Final = name
        self.how: Final = how
        self.signature: Final = Signature(function)
        self.signature.check(arguments=False)
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", name)

    def __repr__(self) -> str:
        return f"<bokiflow.{type(self).__name__} {self.name!r}>"

    @property
    def is_async(self) -> bool:
        """Whether its body is a coroutine; else it runs in a thread."""
        return inspect.iscoroutinefunction(self.function)


class Step(AnyStep, Generic[P, R]):
    """An asynchronous step."""

    async def __call__(self, *args: P.args, **options: P.kwargs) -> R:
        """In a workflow: its outcome, once for ever. Elsewhere: the function itself."""
        flow = context()
        if flow is None:
            return cast(R, await self.function(*args, **options))
        return cast(R, await flow.run_step(self, args, options))


class SyncStep(AnyStep, Generic[P, R]):
    """A step whose body blocks: it runs in a thread. `await step.aio(...)` in workflows."""

    def __call__(self, *args: P.args, **options: P.kwargs) -> R:
        """The function itself. Raises NotInWorkflow in a workflow, where it is `await step.aio(…)`."""
        if context() is not None:
            raise NotInWorkflow(
                f"expected `await {self.__name__}.aio(...)` in a workflow, found a call that would block it"
            )
        return cast(R, self.function(*args, **options))

    async def aio(self, *args: P.args, **options: P.kwargs) -> R:
        """In a workflow: its outcome, once for ever."""
        flow = context()
        if flow is None:
            raise NotInWorkflow(f"{self.__name__}.aio was called outside of a workflow: call it directly")
        return cast(R, await flow.run_step(self, args, options))


class Workflow(Generic[P, R]):
    """A durable function.

    Attributes:
        name: under which it is found again. version: as its author calls this code.
        by_calendar: its timers wait until the log's time has come, even where its own time is ahead of that.
    """

    def __init__(
        self, function: Callable[P, Coroutine[Any, Any, R]], name: str, version: str, *, by_calendar: bool = False
    ) -> None:
        if not inspect.iscoroutinefunction(function):
            raise InvalidArgument(f"expected a workflow to be `async def`, found {function!r}")
        self.function: Final = function
        self.name: Final = name
        self.version: Final = version
        self.by_calendar: Final = by_calendar
        self.signature: Final = Signature(function)
        self.signature.check(arguments=True)
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    def __repr__(self) -> str:
        return f"<bokiflow.Workflow {self.name!r}>"

    def call(self, *args: P.args, **options: P.kwargs) -> Call[R]:
        """What to start: `flow.start(checkout.call(order), id=…)`. Raises InvalidArgument, NotEncodable."""
        return Call(self, self.signature.encode(args, options))

    async def __call__(self, *args: P.args, **options: P.kwargs) -> R:
        """In a workflow: a child, which runs by itself, and its outcome; in the body of a transaction it is a part of that.
        Elsewhere: the function itself, nothing of it durable."""
        flow = context() or IN_TRANSACTION.get()
        if flow is None:
            return await self.function(*args, **options)
        return cast(R, await flow.run_child(self, args, options))


class Call(Generic[R]):
    """A workflow and its arguments, to be started."""

    def __init__(self, workflow: Workflow[..., R], args: Json) -> None:
        self.workflow: Final = workflow
        self.args: Final = args

    def __repr__(self) -> str:
        return f"<bokiflow.Call {self.workflow.name}{self.args}>"


def check_call(found: object) -> None:
    """Check that a program gave a call. Raises InvalidArgument, which names `.call(...)`: it gave a workflow, or called that itself."""
    if isinstance(found, Call):
        return
    workflow, words = found, repr(found)
    if inspect.iscoroutine(found):
        workflow = found.cr_frame.f_locals.get("self") if found.cr_frame is not None else None
        words = "a coroutine, which would run it here and now"
        found.close()
    name = workflow.__name__ if isinstance(workflow, Workflow) else "workflow"
    raise InvalidArgument(f"expected {name}.call(...), found {words}", expected=f"{name}.call(...)", found=words)
