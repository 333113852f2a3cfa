"""What code of a workflow may call beside asyncio, steps and other workflows. Each raises NotInWorkflow elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar, cast

from bokiflow.errors import NotInWorkflow
from bokiflow.runtime.calls import Call, check_call, context
from bokiflow.runtime.instance import Instance
from bokiflow.runtime.transactional import TX, TransactionalStore
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
    """The next value that was sent under a topic; it waits for one. `async with asyncio.timeout(…)` bounds the wait, durably."""
    return cast(Json, await _instance().receive(topic))


async def transact(
    store: TransactionalStore[TX], body: Callable[Concatenate[TX, P], Awaitable[R]], *args: P.args, **options: P.kwargs
) -> R:
    """Runs `body(tx, …)` as a transaction of a store; its outcome and what it wrote are one record, which happens once.

    It is run again while it loses to others, so it must do nothing outside of `tx`. What it raises undoes it, and is raised here.

    Args:
        store: of the worker's `Log`: `log = bokilib.Log(book); store = BokiStore(log)`, `Worker(app, log)`.
    """
    return cast(R, await _instance().transact(store, partial(body, **options) if options else body, args))


def send(id: str, topic: str, value: object) -> None:
    """Sends a value to another workflow; once, whatever happens. Raises NotEncodable."""
    _instance().send(id, topic, value)


def launch(call: Call[Any], id: str, *, due_ms: int = 0, attributes: Mapping[str, str] = MappingProxyType({})) -> None:
    """Start a workflow that is nobody's child, unless one of this id was started before.

    Args:
        due_ms: the time of the firing for which a schedule starts it; see `due_ms`. attributes: by which it can be found.
    """
    instance = _instance()
    check_call(call)
    instance.launch(call.workflow, call.args, id, due_ms, attributes)


def emit(topic: str, value: object) -> None:
    """Emits a value to those who follow this workflow (`handle.events(topic)`). Raises NotEncodable."""
    _instance().emit(topic, value)


def restart(*args: Any, **options: Any) -> NoReturn:
    """Begins the workflow again, with these arguments and a new history: for what never ends, as `while True` would.

    It keeps its id, and what was sent to it and nobody received. What it waits for is given up; its children run on. It ends the run by an
    exception that is no `Exception`, so it is to be called by the workflow's own task, and not to be caught.

    Raises InvalidArgument: these are not its arguments; NotEncodable; AtomicTooLarge: they and what nobody received do not fit a record:
    receive some of it first.
    """
    _instance().restart(args, options)


def patched(name: str) -> bool:
    """Whether this workflow takes the new way at a place where its code was changed.

    if bokiflow.patched("charge twice"): new code
    else: what was there before

    True for what comes here for the first time; False in replays of what was here before the change.
    """
    return _instance().patched(name)


def workflow_id() -> str:
    """Return the id of this workflow: the one that `start` was given, or that a schedule or a parent made."""
    return _instance().id


def is_replayed() -> bool:
    """Return True while what is delivered to this workflow comes from its history: it was told of then."""
    return _instance().is_replayed


def now_ms() -> int:
    """Milliseconds since 1970 UTC, as of the last delivery to this workflow."""
    return _instance().now_ms


def due_ms() -> int | None:
    """Return the time of the firing for which a schedule started this workflow, in milliseconds since 1970 UTC; None: none did.

    It is the time for which the firing was planned, however late it began, and stays the same in replays, after `restart` and in forks.
    Children, and workflows that are debounced or started by a program, have none: give it to them as an argument.
    """
    return _instance().started.due_ms or None


def unique() -> str:
    """32 hexadecimal digits, another each time, the same in each replay."""
    return _instance().unique()


def random() -> float:
    """A number from 0 up to 1, another each time, the same in each replay."""
    return _instance().random()


async def as_completed(waits: Iterable[Coroutine[Any, Any, T]]) -> AsyncIterator[T]:
    """Results in the order in which they came. Leaving it early cancels the rest.

    async for receipt in bokiflow.as_completed([charge(one), charge(two)]): ...
    """
    tasks: set[asyncio.Task[T]] = set()
    for one in waits:
        tasks.add(asyncio.create_task(one))
    try:
        while tasks:
            done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                yield task.result()
    finally:
        for task in tasks:
            task.cancel()
