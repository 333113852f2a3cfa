"""The promises of the shop, checked against the orders that were pushed and the shop at the end. Pure.

    faults = check(orders, acknowledged, state)     # sentences; [] if every promise holds

Every acknowledged order is handled once, or is a dead letter. Every handled order has one result, or a failed workflow. Every
bad order ends as its kind says, and every good order ends well and in time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from examples.orders.app import BOOK, DEAD, ITEMS, STOCK, Order, workflow_of
from examples.orders.wrong import WRONG

OWN_S: Final = 20.0
"""Bound on the time of a good order from push to result, bad orders and kills notwithstanding."""


class ShopState(NamedTuple):
    """Everything in the shop.

    Attributes:
        stock: units left by item.
        sold: units sold by item.
        results: results of workflows by order; None if the workflow failed.
        texts: stored results by order: (text, number of writes).
        receipts: ids of handled orders, one per receipt.
        waiting: number of orders in the queue.
        given_up: reasons of dead letters by order.
        failed: errors of failed workflows by order.
        took_s: seconds from push to result by order.
    """

    stock: Mapping[str, int]
    sold: Mapping[str, int]
    results: Mapping[str, str | None]
    texts: Mapping[str, tuple[str, int]]
    receipts: Sequence[str]
    waiting: int
    given_up: Mapping[str, str] = {}
    failed: Mapping[str, str] = {}
    took_s: Mapping[str, float] = {}


class OrderEnd(NamedTuple):
    """End of a bad order.

    Attributes:
        order: id of the order.
        what: how it ended, in Boki's words.
        look: command that shows more.
    """

    order: str
    what: str
    look: str


def ends(orders: Sequence[Order], state: ShopState) -> list[OrderEnd]:
    """Return the end of each order that went wrong, planned or not, in the order of `orders`."""
    found = []
    for order in orders:
        id, flow = order.id, workflow_of(order.id)
        if id in state.given_up:
            found.append(OrderEnd(id, f"dead letter: {state.given_up[id]}", f"boki queue peek {DEAD} --book {BOOK}"))
        elif id in state.failed:
            found.append(OrderEnd(id, f"failed: {state.failed[id]}", f"boki flow show {flow} --book {BOOK}"))
        elif order.wrong and state.results.get(id) is not None:
            took = f"{state.results[id]}, after {state.took_s.get(id, 0.0):.1f} s"
            found.append(OrderEnd(id, took, f"boki flow steps {flow} --book {BOOK}"))
    return found


def unfinished(orders: Sequence[Order], state: ShopState) -> list[str]:
    """Return the ids of orders without an end: no result, no error, and no dead letter."""
    return [
        order.id
        for order in orders
        if order.id not in state.given_up and order.id not in state.failed and state.results.get(order.id) is None
    ]


def check(orders: Sequence[Order], acknowledged: Sequence[str], state: ShopState) -> list[str]:
    """Return the faults of a shop, given all orders and the ids of acknowledged ones."""
    faults = [f"{state.waiting} orders still wait"] if state.waiting else []
    by_id = {order.id: order for order in orders}
    receipts = Counter(state.receipts)
    faults += [f"order {id} was handled {count} times" for id, count in receipts.items() if count > 1]
    faults += [f"order {id} was never pushed" for id in receipts if id not in by_id]
    done = {*receipts, *state.given_up}
    faults += [f"order {id} was acknowledged, but not handled" for id in acknowledged if id not in done]
    faults += [f"order {id} is a dead letter, but was handled" for id in state.given_up if id in receipts]
    faults += _unexplained(orders, state)
    sent: Counter[str] = Counter()
    for id in receipts:
        if id in state.failed:
            continue
        result = state.results.get(id)
        stored = state.texts.get(id)
        if result is None:
            faults.append(f"order {id} has no result")
        elif stored != (result, 1):
            faults.append(f"order {id} ended with {result!r}, but its object has {stored}")
        elif id in by_id and result == f"sent {by_id[id].count} {by_id[id].item}":
            sent[by_id[id].item] += by_id[id].count
    faults += [f"order {id} has a result, but was not handled" for id in state.texts if id not in receipts]
    for item in ITEMS:
        left, sold = state.stock.get(item, 0), state.sold.get(item, 0)
        if left + sold != STOCK or sold != sent[item] or left < 0:
            faults.append(f"{STOCK} {item}: {left} left, {sold} sold, {sent[item]} sent")
    return faults


def _unexplained(orders: Sequence[Order], state: ShopState) -> list[str]:
    """Return faults about bad orders that ended otherwise than planned, and good ones that ended badly or late."""
    found = {end.order: end.what for end in ends(orders, state)}
    faults = []
    for order in orders:
        what, took_s = found.get(order.id, ""), state.took_s.get(order.id, 0.0)
        if order.wrong and WRONG[order.wrong] not in what:
            faults.append(f"order {order.id} should end with {WRONG[order.wrong]!r}, but ended with {what!r}")
        elif not order.wrong and what:
            faults.append(f"order {order.id} is good, but ended with {what!r}")
        elif not order.wrong and took_s > OWN_S:
            faults.append(f"order {order.id} is good, but took {took_s:.1f} s, longer than {OWN_S:g} s")
    return faults
