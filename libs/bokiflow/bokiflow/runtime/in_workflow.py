"""Functions that workflow code calls beside asyncio, steps and other workflows. Each raises NotInWorkflow outside of workflow code."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar, cast

from bokiflow.errors import NotInWorkflow
from bokiflow.model.records import check_attributes, check_short_text, check_time_ms
from bokiflow.runtime.calls import Call, check_call, context
from bokiflow.runtime.instance import Instance
from bokiflow.runtime.transactional import TX, TransactionalStore
from bokilib.iteration import Iteration
from bokilib.records.codec import Json

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def _instance() -> Instance:
    found = context()
    if found is None:
        raise NotInWorkflow("only code of a workflow can call this, outside of its steps")
    return cast(Instance, found)


async def recv(topic: str = "") -> Json:
    """Wait for the next signal of a topic, and return its value. `async with asyncio.timeout(…)` bounds the wait by a timer.

    Raises:
        InvalidArgument: the topic is no text.
    """
    return cast(Json, await _instance().receive(check_short_text("a topic", topic)))


async def transact(
    store: TransactionalStore[TX], body: Callable[Concatenate[TX, P], Awaitable[R]], *args: P.args, **options: P.kwargs
) -> R:
    """Run `body(tx, …)` as a transaction of a store, and return its result. Writes and result are one record, appended exactly once.

    The body runs again when the transaction loses a conflict, so it must have no effects outside of `tx`. If it raises, nothing is
    written, and the error is raised here.

    Args:
        store: a store of the worker's `Log`: `log = bokilib.Log(book); store = BokiStore(log)`, `Worker(app, log)`.

    Raises:
        UnfitStore: it is no such store.
        InvalidArgument: the body is no function.
    """
    return cast(R, await _instance().transact(store, partial(body, **options) if options else body, args))


def send(id: str, topic: str, value: object) -> None:
    """Send a signal to another workflow, of any app of the book, exactly once. One that has ended, or never existed, gets nothing.

    Raises:
        InvalidArgument: the id or the topic is no text, or the id is empty.
        NotEncodable: the value is not JSON.
    """
    instance = _instance()
    instance.send(check_short_text("an id", id, least=1), check_short_text("a topic", topic), value)


def launch(call: Call[Any], id: str, *, due_ms: int = 0, attributes: Mapping[str, str] = MappingProxyType({})) -> None:
    """Start a workflow that is not a child, unless the id was started before.

    Args:
        due_ms: the planned time of the firing for which a schedule starts it; see `due_ms`.
        attributes: up to 8 names and values by which it can be found.

    Raises:
        InvalidArgument: the call, the id, the time or the attributes are not valid.
    """
    instance = _instance()
    check_call(call)
    check_short_text("an id", id, least=1)
    instance.launch(call.workflow, call.args, id, check_time_ms("due_ms", due_ms), check_attributes(attributes))


def emit(topic: str, value: object) -> None:
    """Emit a value to followers of this workflow (`handle.events(topic)`).

    Raises:
        InvalidArgument: the topic is no text.
        NotEncodable: the value is not JSON.
    """
    _instance().emit(check_short_text("a topic", topic), value)


def restart(*args: Any, **options: Any) -> NoReturn:
    """Restart the workflow with these arguments and an empty history, as a workflow without an end has to from time to time.

    The id stays, and so do signals that were not received. Steps and timers that it waits for are cancelled; children run on. The run ends
    by an exception that is not an `Exception`: do not catch it. If a task calls this that no code awaits, the workflow's own task is
    cancelled, and the next run begins once that has ended.

    Raises:
        InvalidArgument: the workflow does not take these arguments, or one of them does not fit the type of its parameter.
        NotEncodable: one of them is not JSON.
        AtomicTooLarge: the arguments do not fit into a record.
    """
    _instance().restart(args, options)


def patched(name: str) -> bool:
    """Return True if this workflow runs the new code at a place that was changed.

        if bokiflow.patched("charge twice"): new code
        else: old code

    It is True for an instance that reaches the place for the first time, and False in replays of one that passed it before the change.

    Raises:
        InvalidArgument: the name is no text.
    """
    return _instance().patched(check_short_text("the name of a patch", name, least=1))


def deprecate_patch(name: str) -> None:
    """Keep a patch without its old way: replay histories that took the new way, and let the call be removed later.

    bokiflow.deprecate_patch("charge twice")
    new code

    It stands in the place of `if patched(name)` once no workflow that took the old way may run. One that did is blocked by NonDeterminism
    where its history differs from the new way, and resumes with code that has both ways. Workflows that come here for the first time note a
    patch which code without the call replays: remove it once all workflows have ended that recorded the patch by `patched`.

    Raises:
        InvalidArgument: the name is no text.
    """
    _instance().deprecate_patch(check_short_text("the name of a patch", name, least=1))


def workflow_id() -> str:
    """Return the id of this workflow, which its caller chose, or a schedule or parent made."""
    return _instance().id


def is_replayed() -> bool:
    """Return True while this workflow gets deliveries from its history, which it got before."""
    return _instance().is_replayed


def now_ms() -> int:
    """Return milliseconds since 1970 UTC, as of the last delivery to this workflow."""
    return _instance().now_ms


def due_ms() -> int | None:
    """Return the planned time of the firing that started this workflow, in milliseconds since 1970 UTC; None without a schedule.

    A late start does not change it, nor do replays, `restart` and forks. Children, and workflows that are debounced or started by a
    program, have none: pass it to them as an argument.
    """
    return _instance().started.due_ms or None


def unique() -> str:
    """Return 32 hexadecimal digits, which differ for each call and are the same in each replay.

    A step that a deploy puts before the call, by `patched`, does not change them. A further call of `unique` or `random` before it does,
    and so does a further task. `f"{workflow_id()}/charge"` is a key that no deploy changes.
    """
    return _instance().unique()


def random() -> float:
    """Return a number from 0 up to 1, which differs for each call and is the same in each replay."""
    return _instance().random()


def as_completed(waits: Iterable[Coroutine[Any, Any, T]]) -> Iteration[T]:
    """Return an iterator over results in the order of completion. Leaving the loop early cancels the rest, and so does an error.

    async for receipt in bokiflow.as_completed([charge(one), charge(two)]): ...

    An `anext` that is cancelled, as by `asyncio.timeout`, cancels nothing else: the next one continues.
    """
    rest: set[asyncio.Task[T]] | None = None
    ended: deque[asyncio.Task[T]] = deque()

    async def more() -> list[T] | None:
        nonlocal rest
        if rest is None:
            rest = set()
            for one in waits:
                rest.add(asyncio.create_task(one))
        if not ended:
            if not rest:
                return None
            done, rest = await asyncio.wait(rest, return_when=asyncio.FIRST_COMPLETED)
            ended.extend(done)
        try:
            return [ended.popleft().result()]
        except BaseException:
            ended.clear()
            release()
            raise

    def release() -> None:
        nonlocal rest
        rest, left = set(), rest or set()
        for task in left:
            task.cancel()

    return Iteration(more, release=release)
