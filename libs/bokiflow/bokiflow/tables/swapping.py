"""Operations on rows of mode `lwt`, which other programs write too: each happens once, though its statements may time out.

An operation reads the row, which finishes pending changes of it, and checks whether it was applied already. Otherwise it runs its body on
the row and changes the row, unless another writer did in between. After a time-out the operation starts over, which is right whether the
change was made, was not, or is still pending (`swap_rules`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

import msgspec

import boki
from boki_common.errors import Trimmed
from bokiflow.history import inspection
from bokiflow.history.instance_state import state_after
from bokiflow.model.flow_events import PICKER
from bokiflow.model.outcomes import Names, Outcome, RecordedFailure, error_of, failed, succeeded
from bokiflow.model.record_batcher import within_bounds
from bokiflow.runtime.calls import Signature, Step, StepOptions, context, names_of
from bokiflow.runtime.instance import Instance
from bokiflow.tables import swap_rules
from bokiflow.tables.errors import NotHeld, TableUnavailable, WriteUnknown
from bokiflow.tables.ports import TablePort
from bokiflow.tables.schema import Schema
from bokiflow.tables.swap_rules import Name, OneRow
from bokiflow.tables.transactions import Opened
from bokilib.append.log import Log
from bokilib.pauses import pauses
from bokilib.records import tags

OUTSIDE_S: Final = 600.0
"""Seconds after which an operation outside of workflows is given up with an unknown outcome."""
TOKEN_BYTES: Final = 8
R = TypeVar("R")
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Outcome).decode


class Operation(NamedTuple):
    """A change of a row that happens once.

    Attributes:
        schema: the table.
        key: the key of the row.
        name: the name of the operation.
        body: runs on the row, repeatedly while other writers change it.
        places: the names in the modules of the body and of the workflow, for errors.
    """

    schema: Schema
    key: str
    name: str
    body: Callable[[OneRow], Awaitable[Any]]
    places: tuple[Names, ...] = ()


async def applied(port: TablePort, one: Operation, held: Callable[[], Awaitable[None]]) -> Outcome:
    """Apply an operation unless it was applied, and return its outcome; retry until the outcome is known.

    Args:
        port: the database.
        one: the operation.
        held: raises NotHeld if this process may no longer apply the operation. It is called after the row was read, because the
            outcome of an operation that another process finished is deleted only after the process here has lost the workflow.

    Raises:
        NotHeld: another process runs the operation.
        TableRefused: the table does not fit. Nothing was written now, but perhaps by an earlier attempt.
    """
    pause = pauses()
    while True:
        try:
            known = await _attempt(port, one, held)
            if known is not None:
                return known
        except (TableUnavailable, WriteUnknown):
            await asyncio.sleep(pause.next())


async def _attempt(port: TablePort, one: Operation, held: Callable[[], Awaitable[None]]) -> Outcome | None:
    standing = await port.standing(one.schema, one.key)
    helped = None if standing.op in (None, one.name) else await port.helped(one.name)
    known = swap_rules.ended(one.name, standing, helped)
    if known is not None:
        return _decode(known)
    await held()
    row = OneRow(one.schema, standing)
    try:
        outcome = within_bounds(succeeded(await one.body(row)), one.schema.name)
    except Exception as error:  # noqa: BLE001 - an error of the body is the outcome of the operation
        row, outcome = OneRow(one.schema, standing), failed(error, *one.places)
    if standing.op is not None:
        await port.help(standing.op, standing.outcome)
    made = await port.swap(one.schema, one.key, standing.op, row.swap(one.name, _encode(outcome).decode()))
    return outcome if made else None


async def held_here(log: Log, workflow: str, start: int) -> None:
    """Check in the log that this process runs a workflow now.

    Args:
        log: the log that the worker appends to.
        workflow: the id of the workflow.
        start: the seqnum of its start: after the id was forgotten, a new workflow with it may run here.

    Raises:
        NotHeld: another process runs the workflow, or it has ended; the outcomes of its operations may be deleted.
    """
    at_most: int | None = None
    while True:
        try:
            record = await log.book.read_prev(tags.flow_own(workflow), at_most=at_most, consistency="linearizable")
        except Trimmed:
            record = None
        if record is None:
            break
        envelope = await log.open(record)
        events = PICKER.of(record.seqnum, envelope, about=workflow)
        state = state_after(record.seqnum, events)
        if state is not None:
            known = state.start or start  # claims of older programs lack it
            if envelope.by == log.by and state.ended is None and known == start:
                return
            break
        at_most = record.seqnum - 1  # the record is about another id with the same tag
    raise NotHeld(
        f"workflow {workflow!r} has ended, or another worker runs it now, or its worker and the tables have different Logs; expected "
        "log = bokilib.Log(book), Tables(log, …), Worker(app, log)"
    )


class Shared(Protocol):
    """The attributes of `Tables` that changes of rows use."""

    @property
    def log(self) -> Log: ...

    @property
    def port(self) -> TablePort: ...

    @property
    def clock(self) -> boki.Clock: ...


async def change(
    tables: Shared,
    opened: Opened,
    key: str,
    body: Callable[..., Awaitable[R]],
    args: tuple[Any, ...],
    options: dict[str, Any],
) -> R:
    """Run the operation of `Tables.change`: in a workflow as a step, elsewhere at once."""
    instance = cast(Instance | None, context())
    if instance is None:
        log_ms = tables.log.now_ms() or await tables.log.newest_ms()
        began_ms = swap_rules.later_ms(tables.clock.now_ms(), log_ms)
        name = Name(opened.token, "", began_ms, boki.SystemRandom().token(TOKEN_BYTES).hex()).text
        one = Operation(opened.schema, key, name, lambda row: body(row, *args, **options), (names_of(body),))
        try:
            async with asyncio.timeout(OUTSIDE_S):
                outcome = await applied(tables.port, one, _always_held)
        except TimeoutError as late:
            raise WriteUnknown(
                f"a change of table {opened.schema.name!r} may or may not be done", table=opened.schema.name
            ) from late
        return cast(R, value_of(outcome, names_of(body)))
    id, start, name = instance.id, instance.start, Name(opened.token, instance.id, *instance.change_name()).text
    places = names_of(body), names_of(instance.workflow.function)
    one = Operation(opened.schema, key, name, lambda row: body(row, *args, **options), places)

    async def change(name: str, key: str, *args: Any, **options: Any) -> Any:
        outcome = await applied(tables.port, one, lambda: held_here(tables.log, id, start))
        if outcome.error is not None:  # an earlier program may have raised it, of a class that this one lacks
            raise RecordedFailure(outcome.error)
        return outcome.value

    change.__name__ = getattr(body, "__name__", "change")
    step: Step[..., Any] = Step(change, change.__name__, StepOptions(), places[0])
    found = await instance.run_step(step, (name, key, *args), options)
    return cast(R, Signature(body).result(found))


async def _always_held() -> None:
    """Check nothing: no other process runs an operation outside of workflows."""


async def forget(tables: Shared, token: str) -> int:
    """Delete the recorded outcomes of operations of this book that have expired; return how many there were.

    An outcome expires when its workflow ends or, outside of workflows, after `swap_rules.OUTSIDE_MS`.
    """
    port, log = tables.port, tables.log
    now_ms = swap_rules.earlier_ms(tables.clock.now_ms(), await log.newest_ms())
    forgotten = 0
    running: dict[str, bool] = {"": True}
    async for text in port.helps():
        name = swap_rules.name_of(text)
        if name is None or name.token != token:
            continue
        if name.workflow not in running:
            state = await inspection.newest(log, name.workflow, consistency="linearizable")
            running[name.workflow] = state is not None and state.ended is None
        if not running[name.workflow] or swap_rules.is_over(name, now_ms):
            await port.unhelp(text)
            forgotten += 1
    return forgotten


def value_of(outcome: Outcome, names: Mapping[str, Any]) -> Any:
    """Return the result of an operation, or raise its error. `names` are those in the module of its body."""
    if outcome.error is not None:
        raise error_of(outcome.error, names)
    return outcome.value
