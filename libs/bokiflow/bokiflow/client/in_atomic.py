"""Starts of workflows and signals to them in one record with effects of other libraries: all of them happen, or none.

    async with Atomic(flow.log) as tx:
        tx.add(message.acked())
        tx.add(await starting(flow, ship.call(order), id=f"order-{order.id}"))
        tx.add(signalling(flow, f"customer-{order.customer}", "ordered", order.id))

The same works in a transaction of a store, and so in a handler of a queue. `flow` and the other libraries have the same `bokilib.Log`, or
logs of the same book: a record of another book refuses the contribution (`WrongBook`).

- A start expects that its id was never used. If the workflow was started before by the same call, `starting` contributes nothing, so a
  handler or transaction that runs again may start it again. If it is started between this check and the append, the append raises Conflict
  and nothing happened.
- The workflow starts without an owner: the worker that owns its partition claims it, with one more append.
- A signal has no condition. A signal to a workflow that has ended, or never existed, is dropped. The workflow may be of any app of the
  book: which one is read right before the record is sent (`addresses`). If that read fails, nothing is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from bokiflow.client.flow import Flow, check_id, check_same
from bokiflow.history import addresses, inspection
from bokiflow.model import records
from bokiflow.model.flow_events import Signalled
from bokiflow.model.outcomes import as_json
from bokiflow.runtime.calls import Call
from bokilib.records.contribution import Contribution


async def starting(
    flow: Flow, call: Call[Any], *, id: str, attributes: Mapping[str, str] | None = None, traceparent: str = ""
) -> Contribution:
    """Return the contribution that starts a workflow; an empty one if the same call has started it before.

    Args:
        flow: the client.
        call: the workflow and its arguments.
        id: the id, up to 512 characters; a repeated attempt has to use the same one.
        attributes: up to 8 attributes to find the workflow by.
        traceparent: the W3C trace parent.

    Raises:
        IdReused: another call has used the id.
        InvalidArgument: the id or the attributes are not valid.
    """
    mine = flow.started(call, check_id(id), attributes or {}, traceparent)
    state = await inspection.newest(flow.log, id, consistency="linearizable")
    there = None if state is None else await inspection.started_call(flow.log, id, state)
    if there is None:
        return _of(flow, records.start(mine, 0))
    await check_same(flow.log, call, mine, there)
    return _of(flow, Contribution())


def signalling(flow: Flow, id: str, topic: str, value: object = None) -> Contribution:
    """Return the contribution that sends a signal: `recv(topic)` in the workflow's code returns its value.

    Raises:
        NotEncodable: the value is not JSON.
        InvalidArgument: the id or the topic is not valid.
    """
    event = Signalled(check_id(id), records.check_text("a topic", topic), as_json(value), flow.token())
    return _of(flow, addresses.signal(flow.log, event, flow.group))


def _of(flow: Flow, part: Contribution) -> Contribution:
    """Return a contribution with the client's book as its origin."""
    return msgspec.structs.replace(part, origin=flow.log.origin(f"app {flow.group!r}"))
