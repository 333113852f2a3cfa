"""Rules of the shop that hold in the end, and how the orders ended that go wrong. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from examples.orders.app import BOOK, DEAD, ITEMS, STOCK, Order, workflow_of
from examples.orders.wrong import WRONG

OWN_S: Final = 20.0
"""A good order takes no longer from its push to its result, whatever goes wrong with others and whichever process is killed."""


class ShopState(NamedTuple):
    """All that is there.

    Attributes:
        results: of workflows that ended, by order; None: it did not. texts: objects of results: (text, how often it was written).
        receipts: orders, one a receipt. waiting: orders that are not handled.
        given_up: dead letters, by order: why. failed: errors of workflows, by order. took_s: seconds from push to result, by order.
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
    """The end of an order that went wrong: what Boki says of it, and the command that shows more."""

    order: str
    what: str
    look: str


def ends(orders: Sequence[Order], state: ShopState) -> list[OrderEnd]:
    """Return how each order ended that went wrong, planted or not, in the order in which they were given."""
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
    """Return the ids of orders that have no end yet: neither a result, nor an error, nor a place among the dead letters."""
    return [
        order.id
        for order in orders
        if order.id not in state.given_up and order.id not in state.failed and state.results.get(order.id) is None
    ]


def check(orders: Sequence[Order], acknowledged: Sequence[str], state: ShopState) -> list[str]:
    """Sentences about what is wrong; none."""
    faults = [f"{state.waiting} orders wait still"] if state.waiting else []
    by_id = {order.id: order for order in orders}
    receipts = Counter(state.receipts)
    faults += [f"order {id} was handled {count} times" for id, count in receipts.items() if count > 1]
    faults += [f"nobody ordered {id}" for id in receipts if id not in by_id]
    done = {*receipts, *state.given_up}
    faults += [f"order {id} was acknowledged, and not handled" for id in acknowledged if id not in done]
    faults += [f"order {id} is a dead letter, and was handled" for id in state.given_up if id in receipts]
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
            faults.append(f"order {id} ended with {result!r}, and its object has {stored}")
        elif id in by_id and result == f"sent {by_id[id].count} {by_id[id].item}":
            sent[by_id[id].item] += by_id[id].count
    faults += [f"order {id} has a result, and was not handled" for id in state.texts if id not in receipts]
    for item in ITEMS:
        left, sold = state.stock.get(item, 0), state.sold.get(item, 0)
        if left + sold != STOCK or sold != sent[item] or left < 0:
            faults.append(f"of {STOCK} {item} {left} are left, {sold} were sold and {sent[item]} sent")
    return faults


def _unexplained(orders: Sequence[Order], state: ShopState) -> list[str]:
    """Say which orders went wrong without a reason, or in another way than was planted, and which good ones had to wait for them."""
    found = {end.order: end.what for end in ends(orders, state)}
    faults = []
    for order in orders:
        what, took_s = found.get(order.id, ""), state.took_s.get(order.id, 0.0)
        if order.wrong and WRONG[order.wrong] not in what:
            faults.append(f"order {order.id} should end with {WRONG[order.wrong]!r}, and ended with {what!r}")
        elif not order.wrong and what:
            faults.append(f"order {order.id} is good, and ended with {what!r}")
        elif not order.wrong and took_s > OWN_S:
            faults.append(f"order {order.id} is good, and took {took_s:.1f} s")
    return faults
