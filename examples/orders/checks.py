"""What has to be true of the shop in the end. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from examples.orders.app import ITEMS, STOCK, Order


class State(NamedTuple):
    """All that is there.

    Attributes:
        results: of workflows that ended, by order; None: it did not. texts: objects of results: (text, how often it was written).
        receipts: orders, one a receipt. waiting: orders that are not handled.
    """

    stock: Mapping[str, int]
    sold: Mapping[str, int]
    results: Mapping[str, str | None]
    texts: Mapping[str, tuple[str, int]]
    receipts: Sequence[str]
    waiting: int


def check(orders: Sequence[Order], acknowledged: Sequence[str], state: State) -> list[str]:
    """Sentences about what is wrong; none."""
    faults = [f"{state.waiting} orders wait still"] if state.waiting else []
    by_id = {order.id: order for order in orders}
    receipts = Counter(state.receipts)
    faults += [f"order {id} was handled {count} times" for id, count in receipts.items() if count > 1]
    faults += [f"nobody ordered {id}" for id in receipts if id not in by_id]
    faults += [f"order {id} was acknowledged, and not handled" for id in acknowledged if id not in receipts]
    sent: Counter[str] = Counter()
    for id in receipts:
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
