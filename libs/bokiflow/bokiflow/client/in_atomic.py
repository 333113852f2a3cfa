"""Workflows that begin, and signals to them, in a record with effects of other libraries: all of it happens, or nothing.

    async with Atomic(flow.log) as tx:
        tx.add(message.acked())
        tx.add(await starting(flow, ship.call(order), id=f"order-{order.id}"))
        tx.add(signalling(flow, f"customer-{order.customer}", "ordered", order.id))

The same in a transaction of a store, and so in a handler of a queue. `flow` is of the same `bokilib.Log` as the rest.

- A start expects that its id was never used. Whoever finds the workflow there already, started by the same call, adds nothing: so what
  runs again (a handler, a transaction) may start it again. Started between the look and the record: Conflict, and nothing happened.
- It is begun without an owner: the worker who has its partition finds it, and claims it, which is one append more.
- A signal is sent without a condition. One to a workflow that is over, or never was, is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bokiflow.client.flow import Flow, check_id, check_same
from bokiflow.history import inspection
from bokiflow.model import records
from bokiflow.model.flow_events import Signalled
from bokiflow.model.plain import as_json
from bokiflow.runtime.calls import Call
from bokilib.records.contribution import Contribution


async def starting(
    flow: Flow, call: Call[Any], *, id: str, attributes: Mapping[str, str] | None = None, traceparent: str = ""
) -> Contribution:
    """What makes a record of any library this start; nothing, if the same call has this id already.

    Args:
        id: of at most 512 characters; what it is started for has the same one each time it is tried.
        attributes: up to 8, by which it can be found.

    Raises:
        IdReused: the id is another call's. InvalidArgument.
    """
    mine = flow.started(call, check_id(id), dict(attributes or {}), traceparent)
    state = await inspection.newest(flow.log, id, consistency="linearizable")
    there = None if state is None else await inspection.call_of(flow.log, id, state)
    if there is None:
        return records.start(mine, 0)
    check_same(mine, there)
    return Contribution()


def signalling(flow: Flow, id: str, topic: str, value: object = None) -> Contribution:
    """What makes a record of any library this signal, which `recv(topic)` gives it. Raises NotEncodable, InvalidArgument."""
    event = Signalled(check_id(id), topic, as_json(value), flow.token())
    return records.send(records.Place(id, flow.group), event)
