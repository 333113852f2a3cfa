"""Operations on rows of tables that others write too (mode `lwt`): each happens once, whatever became of the statements it took.

An operation reads the row (which finishes what may be under way), looks whether it was applied already, and else runs its body on
what it read and changes the row, if nobody did meanwhile. After a time-out nothing is guessed: it begins anew, which is right whether
the change was made, was not, or still will be (`swap_rules`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

import msgspec

import boki
from boki_common.errors import Trimmed
from bokiflow.history import inspection
from bokiflow.history.instance_state import held
from bokiflow.model.flow_events import PICKER
from bokiflow.model.flush import within_bounds
from bokiflow.model.outcomes import Names, Outcome, Recorded, error_of, failed, succeeded
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
"""Of an operation of no workflow; then it is given up, and its outcome is unknown."""
TOKEN_BYTES: Final = 8
R = TypeVar("R")
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Outcome).decode


class Operation(NamedTuple):
    """What shall happen to a row, once.

    Attributes:
        name: of the operation. body: is run on the row, again while it changes.
        places: names of the modules of the body and of the workflow.
    """

    schema: Schema
    key: str
    name: str
    body: Callable[[OneRow], Awaitable[Any]]
    places: tuple[Names, ...] = ()


async def applied(port: TablePort, one: Operation, held: Callable[[], Awaitable[None]]) -> Outcome:
    """Applies an operation, or finds that it was; how it ended. It asks until that is known.

    Args:
        held: raises NotHeld when it is not ours any more to apply it. It is asked after the row was read: what is forgotten of an
            operation that somebody else finished is forgotten only then.

    Raises:
        NotHeld. TableRefused, ForeignWrite: nothing was written, now; perhaps by an earlier attempt.
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
    except Exception as error:  # noqa: BLE001 - whatever a body raises is how the operation ends
        row, outcome = OneRow(one.schema, standing), failed(error, *one.places)
    if standing.op is not None:
        await port.help(standing.op, standing.outcome)
    made = await port.swap(one.schema, one.key, standing.op, row.swap(one.name, _encode(outcome).decode()))
    return outcome if made else None


async def held_here(log: Log, workflow: str, start: int) -> None:
    """Check that this process runs a workflow, as far as the log knows now.

    Args:
        start: seqnum at which the workflow began: of an id that was forgotten, another one may run here.

    Raises:
        NotHeld: somebody else runs it, or it has ended: then what was noted of its operations may be forgotten.
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
        state = held(record.seqnum, events)
        if state is not None:
            known = state.start or start  # claims of older programs lack it
            if envelope.by == log.by and state.ended is None and known == start:
                return
            break
        at_most = record.seqnum - 1  # of another id with this tag
    raise NotHeld(
        f"workflow {workflow!r} has ended or is run by somebody else now, or its worker is not made of the tables' own Log: "
        "log = bokilib.Log(book), Tables(log, …), Worker(app, log)"
    )


class Shared(Protocol):
    """What changes of rows need of `Tables`."""

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
    """See `Tables.change`."""
    instance = cast(Instance | None, context())
    if instance is None:
        log_ms = tables.log.now_ms() or await tables.log.newest_ms()
        began_ms = swap_rules.later_ms(tables.clock.now_ms(), log_ms)
        name = Name(opened.token, "", began_ms, boki.SystemRandom().token(TOKEN_BYTES).hex()).text
        one = Operation(opened.schema, key, name, lambda row: body(row, *args, **options), (names_of(body),))
        try:
            async with asyncio.timeout(OUTSIDE_S):
                outcome = await applied(tables.port, one, _held_by_nobody)
        except TimeoutError as late:
            raise WriteUnknown(
                f"a change of table {opened.schema.name!r} may or may not be done", table=opened.schema.name
            ) from late
        return cast(R, value_of(outcome, names_of(body)))
    id, start, name = (
        instance.id,
        instance.start,
        Name(opened.token, instance.id, instance.now_ms, instance.unique()).text,
    )
    places = names_of(body), names_of(instance.workflow.function)
    one = Operation(opened.schema, key, name, lambda row: body(row, *args, **options), places)

    async def change(name: str, key: str, *args: Any, **options: Any) -> Any:
        outcome = await applied(tables.port, one, lambda: held_here(tables.log, id, start))
        if outcome.error is not None:  # perhaps of an earlier program, and of a class that this one lacks
            raise Recorded(outcome.error)
        return outcome.value

    change.__name__ = getattr(body, "__name__", "change")
    step: Step[..., Any] = Step(change, change.__name__, StepOptions(), places[0])
    found = await instance.run_step(step, (name, key, *args), options)
    return cast(R, Signature(body).result(found))


async def _held_by_nobody() -> None:
    """Of no workflow: nobody else does it."""


async def forget(tables: Shared, token: str) -> int:
    """Forgets what was noted of operations of this book that nobody asks for; returns of how many."""
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
    """What an operation returned, or raised. `names`: of the module of its body."""
    if outcome.error is not None:
        raise error_of(outcome.error, names)
    return outcome.value
