"""Debounced starts: many calls start one workflow, some time after the last call: `flow.debounce(call, id=…, quiet_s=…, at_most_s=…)`.

A round of calls is a workflow, `debounce/<id>/<n>`. It receives each call as a signal, waits until no call has come for a while, and starts
the newest one under its own id with "/run". n is the seqnum of the start of the round before, so all callers that find that round closed
start the same next one.

- A round closes by sending itself a signal. Signals are received in the order of the log, so a call that was sent before takes part.
- After sending a call, the caller reads in the log whether it came before the close. If not, the caller sends it to the next round.
- A round starts its workflow by name, so a worker of another version, which lacks the workflow, can run the round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final, Protocol, cast

import msgspec

from boki_common.errors import InvalidArgument, Trimmed
from bokiflow.errors import IdExpired, IdReused
from bokiflow.history import inspection
from bokiflow.history.inspection import newest_start
from bokiflow.model import records
from bokiflow.model.flow_events import Signalled
from bokiflow.model.outcomes import as_json
from bokiflow.model.record_batcher import PASS_ADDRESS, check_size, size_of
from bokiflow.runtime import in_workflow
from bokiflow.runtime.calls import Call, Registry, Workflow, check_call, named
from bokilib.append.log import Log
from bokilib.errors import partly_applied
from bokilib.records import tags

NAME: Final = "boki.debounce"
ATTRIBUTE: Final = "boki.debounce"
_CALLS: Final = "call"
_CLOSED: Final = "closed"
ATTEMPTS: Final = 8
"""Ids to try for the next round, at most: an id may still be remembered from a round long ago whose result is not kept. Those that
other apps of the book have for their rounds do not count."""


class Debounced(msgspec.Struct, frozen=True):
    """The signal with a call; with None as `workflow` it is the signal that closes the round."""

    workflow: str | None = None
    args: Any = None
    quiet_s: float = 0
    at_most_s: float = 0
    attributes: Mapping[str, str] = {}


def checked(
    call: Call[Any], quiet_s: float, at_most_s: float | None, attributes: Mapping[str, str] | None = None
) -> Debounced:
    """Return the signal for a call.

    Raises:
        InvalidArgument: the call, the times or the attributes are not valid.
    """
    check_call(call)
    most_s = 10 * quiet_s if at_most_s is None else at_most_s
    if not 0 < quiet_s <= most_s:
        raise InvalidArgument(f"expected 0 < quiet_s ≤ at_most_s, found quiet_s={quiet_s} and at_most_s={most_s}")
    check_size(size_of(call.args), f"arguments of workflow {call.workflow.name!r} in a debounced call", PASS_ADDRESS)
    return Debounced(call.workflow.name, call.args, quiet_s, most_s, records.check_attributes(attributes or {}))


def workflow(app: Registry) -> Workflow[..., None]:
    """Return the workflow that runs a round."""

    async def debounce() -> None:
        newest = await _received()
        last_ms = begun_ms = in_workflow.now_ms()
        while True:
            until_ms = min(last_ms + newest.quiet_s * 1_000, begun_ms + newest.at_most_s * 1_000)
            try:
                async with asyncio.timeout(max(0.0, until_ms - in_workflow.now_ms()) / 1_000):
                    newest = await _received()
            except TimeoutError:
                break
            last_ms = in_workflow.now_ms()
        in_workflow.emit(_CLOSED, None)
        in_workflow.send(in_workflow.workflow_id(), _CALLS, Debounced())
        while (one := await _received()).workflow is not None:
            newest = one
        assert newest.workflow is not None
        call, id = Call(named(app, newest.workflow), newest.args), id_of_run(in_workflow.workflow_id())
        in_workflow.launch(call, id, attributes=newest.attributes)

    return Workflow(debounce, NAME, "")


async def _received() -> Debounced:
    return msgspec.convert(await in_workflow.recv(_CALLS), Debounced)


def id_of_run(round_id: str) -> str:
    """Return the id of the workflow that a round starts."""
    return f"{round_id}/run"


class Starts(Protocol):
    """The attributes and methods of `Flow` that debounced calls use."""

    @property
    def app(self) -> Registry: ...

    @property
    def log(self) -> Log: ...

    @property
    def group(self) -> str: ...

    def token(self) -> str: ...

    async def start(self, call: Call[None], *, id: str, attributes: Mapping[str, str]) -> object: ...


async def debounced(flow: Starts, id: str, call: Debounced) -> str:
    """Send a call to the open round of an id, or start the next round.

    Returns:
        The id of the workflow that the round will start.

    Raises:
        AppendUnknown: the call may or may not have been sent.
        PartlyApplied: the call was sent, and may or may not take part in the round; call again.
    """
    made = cast(Workflow[..., None], flow.app.find(NAME)).call()
    found = await newest_start(flow.log, flow.group, ATTRIBUTE, id)
    tried = of_others = 0
    with ExitStack() as begun:
        while True:
            if found is not None and await _takes(flow, found[1], call):
                return id_of_run(found[1])
            before = 0 if found is None else found[0]
            following = f"debounce/{id}/{before}.{tried}" if tried else f"debounce/{id}/{before}"
            try:
                await flow.start(made, id=following, attributes={ATTRIBUTE: id})
            except (IdReused, IdExpired):
                tried += 1  # a round of long ago had this id; all callers try the same ids in the same order
                of_others += await inspection.group_of(flow.log, following) not in (None, "", flow.group)
                if tried - of_others == ATTEMPTS:
                    raise
                continue
            begun.enter_context(partly_applied("a round of calls is started, this call was not sent; call again"))
            state = await inspection.newest(flow.log, following)
            if state is not None and state.start > before:
                found, tried, of_others = (state.start, following), 0, 0
            else:  # the round was forgotten in between
                found = await newest_start(flow.log, flow.group, ATTRIBUTE, id)


async def _takes(flow: Starts, round_id: str, call: Debounced) -> bool:
    """Send a call to a round unless the round is closed; return whether the call takes part in it."""
    if await _is_closed(flow.log, round_id, None):
        return False
    notice = Signalled(round_id, _CALLS, as_json(call), flow.token())
    seqnum = await flow.log.append(records.send(records.InstanceStreams(round_id, flow.group), notice))
    with partly_applied("the call was sent, and it is not known whether its round still takes it; call again"):
        return not await _is_closed(flow.log, round_id, seqnum)


async def _is_closed(log: Log, round_id: str, at: int | None) -> bool:
    """Return whether a round closed before a place of the log, or with None at any place. A round that is trimmed is closed."""
    closed = tags.flow_output(round_id, _CLOSED)
    try:
        if await log.book.read_prev(closed, at_most=at) is not None:
            return True
    except Trimmed:
        return True
    state = await inspection.newest(log, round_id)
    return (state is None or state.ended is not None) and await log.book.read_prev(closed) is None
