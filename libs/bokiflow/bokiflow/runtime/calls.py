"""Workflows and steps as programs define and call them: `app.workflow`, `app.step`. A call has the types of its function.

Outside of workflows, and in the body of a step, a step is the function that it was made from. In a workflow its body runs outside of the
code, and its outcome is recorded. A workflow that awaits another workflow has it as a child; `call` returns what a client starts.

Attempts of a step are not recorded, only its last outcome is. So a worker that takes the workflow over counts from the first attempt.

A workflow can be called by its name (`named`): a program that starts it need not have its code, since a worker that has it runs it.
"""

from __future__ import annotations

import inspect
import math
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

import msgspec

from boki_common.errors import InvalidArgument
from bokiflow.errors import NotInWorkflow, NotRegistered
from bokiflow.model.outcomes import as_json
from bokiflow.runtime import flow_loop
from bokilib.errors import NotEncodable
from bokilib.records.codec import Json, check_equal, check_type, copy_json, from_json


class Retry(msgspec.Struct, frozen=True):
    """The number of attempts of a step, and the delays between them.

    Attributes:
        attempts: the most attempts, the first included.
        delay_s: seconds before the second attempt.
        backoff: the factor by which each further delay grows.
        most_s: the longest delay in seconds.
        on: classes of errors that are retried; all others fail the step at once.
    """

    attempts: int = 3
    delay_s: float = 1.0
    backoff: float = 2.0
    most_s: float = 100.0
    on: tuple[type[Exception], ...] = (Exception,)

    def __post_init__(self) -> None:
        times = self.delay_s, self.backoff, self.most_s
        classes = self.on if isinstance(self.on, tuple) else (self.on,)
        if (
            type(self.attempts) is not int
            or not all(isinstance(one, int | float) and not math.isnan(one) for one in times)
            or not all(isinstance(one, type) and issubclass(one, BaseException) for one in classes)
        ):
            raise InvalidArgument(
                "expected attempts as an int, delay_s, backoff and most_s as numbers, and on as a tuple of classes of errors, "
                f"found {self}"
            )
        if self.attempts < 1 or self.delay_s < 0 or self.backoff < 1 or self.most_s < 0 or not self.on:
            raise InvalidArgument(
                "expected at least one attempt, delays of at least 0 s, a backoff of at least 1 and some class of errors, "
                f"found {self}"
            )


ONCE = Retry(attempts=1)


def next_delay_s(retry: Retry, attempt: int, error: BaseException) -> float | None:
    """Return the seconds until the next attempt; None if there is none. `attempt`: the one that failed, counted from 1."""
    if attempt >= retry.attempts or not isinstance(error, retry.on):
        return None
    if not retry.delay_s:
        return 0.0
    try:
        return min(retry.most_s, retry.delay_s * float(retry.backoff) ** (attempt - 1))
    except OverflowError:
        return retry.most_s


P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Signature:
    """The parameters and the result of a function, as JSON and as its types."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._signature: Final = inspect.signature(function)
        self._function: Final = function
        self._hints: dict[str, Any] | None = None

    def _kinds(self) -> dict[str, Any]:
        if self._hints is None:  # at the first call: the module may define the types below the function
            annotations = inspect.get_annotations(self._function, eval_str=True)
            self._hints = {name: _without_json(kind) for name, kind in annotations.items()}
        return self._hints

    def encode(self, args: tuple[Any, ...], options: Mapping[str, Any]) -> Json:
        """Return arguments as JSON.

        Raises:
            InvalidArgument: the function does not take these arguments.
            NotEncodable: one of them is not JSON.
        """
        try:
            self._signature.bind(*args, **options)
        except TypeError as fault:
            raise InvalidArgument(f"{self._function.__qualname__}{self._signature}: {fault}") from fault
        return [[as_json(one) for one in args], {name: as_json(one) for name, one in options.items()}]

    def decode(self, stored: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return recorded arguments as the types of the function. Raises NotEncodable if they do not fit it."""
        try:
            bound = self._signature.bind(*stored[0], **stored[1])
        except (TypeError, LookupError) as fault:
            raise NotEncodable(
                f"{self._function.__qualname__}{self._signature} was started with other arguments: {fault}; keep its parameters, "
                "or give new ones a default"
            ) from fault
        for name, value in bound.arguments.items():
            bound.arguments[name] = self._decoded(name, value)
        return list(bound.args), dict(bound.kwargs)

    def _decoded(self, name: str, value: Any) -> Any:
        """Return the recorded argument of a parameter as its type. Raises NotEncodable if it does not fit."""
        kind, parameter = self._kinds().get(name, Any), self._signature.parameters[name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            return tuple(_typed(kind, one) for one in value)
        if parameter.kind is parameter.VAR_KEYWORD:
            return {key: _typed(kind, one) for key, one in value.items()}
        return _typed(kind, value)

    def checked(self, args: tuple[Any, ...], options: Mapping[str, Any]) -> Json:
        """Return arguments as JSON, as `encode` does, once they decode to the types of the function.

        Raises:
            InvalidArgument: the function does not take these arguments, or one of them does not fit the type of its parameter.
            NotEncodable: one of them is not JSON.
        """
        stored = cast(list[Any], self.encode(args, options))
        try:
            kinds = self._kinds()
        except (NameError, AttributeError):  # the name of a type that this program does not import
            return stored
        given = self._signature.bind(*args, **options).arguments
        for name, value in self._signature.bind(*stored[0], **stored[1]).arguments.items():
            try:
                back = self._decoded(name, value)
            except Exception as fault:
                why = fault.facts.get("found", fault) if isinstance(fault, NotEncodable) else fault
                kind = kinds[name]
                expected = kind.__name__ if isinstance(kind, type) else str(kind)
                raise InvalidArgument(
                    f"{self._function.__qualname__}: expected {expected} as argument {name!r}, found {given[name]!r:.80}: {why}",
                    expected=expected,
                    found=repr(given[name])[:80],
                ) from fault
            check_equal(kinds.get(name, Any), given[name], back)
        return stored

    def same(self, one: Any, other: Any) -> bool:
        """Return True if the function gets equal arguments from two recorded calls, written by position, by name or left to defaults."""
        try:
            return self._normal(one) == self._normal(other)
        except Exception:  # noqa: BLE001 - arguments of another signature, and types of users, raise any error
            return False

    def _normal(self, stored: Any) -> bytes:
        """Return the arguments that the function gets from a recorded call, as sorted JSON: by name, with defaults."""
        args, options = self.decode(stored)
        bound = self._signature.bind(*args, **options)
        bound.apply_defaults()
        return msgspec.json.encode({name: as_json(one) for name, one in bound.arguments.items()}, order="sorted")

    def result(self, value: Json) -> Any:
        """Return a recorded result as a new object of the function's type. Raises NotEncodable if it does not fit."""
        return _typed(self._kinds().get("return", Any), value)

    def stored(self, value: object) -> Json:
        """Return a result as JSON.

        A result that does not fit the type of the function is recorded as it is: the workflow is blocked when it gets that, until code
        with another type runs it.

        Raises:
            NotEncodable: it is not JSON, or would be read back as another value.
        """
        made = as_json(value)
        try:
            back = self.result(made)
        except (NotEncodable, NameError, AttributeError):
            return made
        kind = self._kinds().get("return", Any)
        if kind is not None and kind is not type(None):
            check_equal(kind, value, back)
        return made

    def check(self, *, arguments: bool) -> None:
        """Check that JSON can be decoded to the types of the function, if their names resolve already.

        Args:
            arguments: check the parameters too. Those of a step are never decoded.

        Raises:
            InvalidArgument: JSON cannot be decoded to one of the types.
        """
        try:
            kinds = self._kinds()
        except (NameError, AttributeError):  # defined below the function; if not, the first call fails
            return
        for name, kind in kinds.items():
            known = kind is inspect.Parameter.empty or kind is None or kind is object or kind in (NoReturn, Never)
            if not known and (arguments or name == "return"):
                what = "the result" if name == "return" else f"parameter {name!r}"
                check_type(kind, f"{what} of {self._function.__qualname__}")


def names_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the global names of a function's module, looking through decorators and `functools.partial`."""
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
    """Replace `Json`, a recursive alias, by Any in a type."""
    if isinstance(kind, str | ForwardRef):
        return Any
    if get_origin(kind) is Literal:
        return kind
    args = get_args(kind)
    changed = tuple(_without_json(one) for one in args)
    if changed == args:
        return kind
    origin = get_origin(kind)
    return Any if isinstance(kind, types.UnionType) or origin is Union else origin[changed]  # `Json | …` takes any JSON


class StepOptions(NamedTuple):
    """Options of a step.

    Attributes:
        timeout_s: the bound of one attempt.
        at_most_once: record the begin of the body in one more record, and never run it again after a crash.
    """

    retry: Retry = ONCE
    timeout_s: float | None = None
    at_most_once: bool = False


class Context(Protocol):
    """The instance whose code makes a call."""

    async def run_step(self, step: AnyStep, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Return the result of a step, or raise its error."""

    async def run_child(self, workflow: Workflow[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Return the result of a child workflow, or raise its error. Raises InvalidArgument if the arguments do not fit it."""


class Registry(Protocol):
    """The workflows of a program by name, which an `App` has."""

    @property
    def group(self) -> str:
        """The name of the app."""

    def find(self, name: str) -> Workflow[..., Any]:
        """Return a workflow. Raises NotRegistered if the program lacks it."""


class Caller(Protocol):
    """A transaction whose body may call workflows."""

    async def run_child(self, workflow: Workflow[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Return the result of a child workflow that is a part of the transaction, or raise its error."""


IN_TRANSACTION: Final[ContextVar[Caller | None]] = ContextVar("bokiflow transaction", default=None)
"""The transaction whose body runs now."""


def context() -> Context | None:
    """Return the instance whose code calls this; None outside of workflows."""
    loop = flow_loop.current()
    return None if loop is None else cast(Context, loop.owner)


class AnyStep:
    """A step: a function, its name and its options.

    Attributes:
        names: the global names in which classes of its errors are looked up.
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
        """True if the function is a coroutine function; else it runs in a thread."""
        return inspect.iscoroutinefunction(self.function)


class Step(AnyStep, Generic[P, R]):
    """An asynchronous step."""

    async def __call__(self, *args: P.args, **options: P.kwargs) -> R:
        """Run the step in a workflow, with one recorded outcome; elsewhere call the function."""
        flow = context()
        if flow is None:
            return cast(R, await self.function(*args, **options))
        return cast(R, await flow.run_step(self, args, options))


class SyncStep(AnyStep, Generic[P, R]):
    """A step with a plain function, which runs in a thread. Workflows call it by `await step.aio(...)`."""

    def __call__(self, *args: P.args, **options: P.kwargs) -> R:
        """Call the function. Raises NotInWorkflow in a workflow, which has to use `await step.aio(…)`."""
        if context() is not None:
            raise NotInWorkflow(
                f"expected `await {self.__name__}.aio(...)` in a workflow, found a call that would block it"
            )
        return cast(R, self.function(*args, **options))

    async def aio(self, *args: P.args, **options: P.kwargs) -> R:
        """Run the step in a workflow, with one recorded outcome. Raises NotInWorkflow elsewhere."""
        flow = context()
        if flow is None:
            raise NotInWorkflow(f"{self.__name__}.aio was called outside of a workflow: call it directly")
        return cast(R, await flow.run_step(self, args, options))


class Workflow(Generic[P, R]):
    """A durable function.

    Attributes:
        name: the name in records, by which a worker finds it.
        version: the author's name for this version of the code.
        by_calendar: timers wait for the clock of the log, even if the time of the instance is ahead of it.
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
        """Return a call to start: `flow.start(checkout.call(order), id=…)`.

        Raises:
            InvalidArgument: the function does not take these arguments, or one of them does not fit the type of its parameter.
            NotEncodable: one of them is not JSON.
        """
        return Call(self, self.signature.checked(args, options))

    async def __call__(self, *args: P.args, **options: P.kwargs) -> R:
        """Run a child workflow and return its result.

        In the body of a transaction the child is a part of the transaction. Outside of workflows the function is called, and nothing is
        recorded.
        """
        flow = context() or IN_TRANSACTION.get()
        if flow is None:
            return await self.function(*args, **options)
        return cast(R, await flow.run_child(self, args, options))


class Call(Generic[R]):
    """A workflow and its arguments."""

    def __init__(self, workflow: Workflow[..., R], args: Json) -> None:
        self.workflow: Final = workflow
        self.args: Final = args

    def __repr__(self) -> str:
        return f"<bokiflow.Call {self.workflow.name}{self.args}>"


def check_call(found: object) -> None:
    """Check that an argument is a Call. Raises InvalidArgument, which names `.call(...)`, for a workflow or a coroutine of one."""
    if isinstance(found, Call):
        return
    workflow, words = found, repr(found)
    if inspect.iscoroutine(found):
        workflow = found.cr_frame.f_locals.get("self") if found.cr_frame is not None else None
        words = "a coroutine, which would run it here and now"
        found.close()
    name = workflow.__name__ if isinstance(workflow, Workflow) else "workflow"
    raise InvalidArgument(f"expected {name}.call(...), found {words}", expected=f"{name}.call(...)", found=words)


def named(app: Registry, name: str) -> Workflow[..., Any]:
    """Return the workflow of this name, or a stand-in that can be started here and runs in another process."""
    try:
        return app.find(name)
    except NotRegistered:
        return Workflow(_elsewhere, name, "")


async def _elsewhere(*args: Any, **options: Any) -> Any:
    """Stand in for a workflow of another program. Workers find its code by name, so this is never called."""
    raise NotRegistered(
        f"expected to start a workflow of another program by its name, found a call with {args} and {options}"
    )
