"""Arguments of a wrong type, or that no record can hold: refused before anything is sent, by an error that names them."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from boki_common.errors import InvalidArgument
from bokilib import Fence
from bokilib.follow.members import Members
from bokiqueue import Limits, Queue, Receiving
from bokistore import BokiStore
from libs.tests.queue.conftest import Another, book_of

SURROGATE = "a\ud800"
NO_NAMES: list[Any] = [SURROGATE, 5, b"x", ["a"], ""]
NO_SECONDS: list[Any] = [math.nan, math.inf, -1, "5", True, [1], 1e300]


async def _called(call: Callable[[], Any]) -> None:
    """Make a call that may be awaitable."""
    found = call()
    if isinstance(found, Awaitable):
        await found


async def _refused(calls: dict[str, Callable[[Any], Any]], values: list[Any]) -> None:
    """Check that each call refuses each value."""
    for what, call in calls.items():
        for value in values:
            try:
                await _called(lambda call=call, value=value: call(value))  # type: ignore[misc]
            except InvalidArgument:
                continue
            raise AssertionError(f"{what} took {value!r}")


async def test_names_are_text_that_utf8_can_encode(another: Another) -> None:
    queue = await another(shards=1)
    book = book_of(queue)
    before = queue.log.appends
    calls: dict[str, Callable[[Any], Any]] = {
        "open": lambda name: Queue.open(book, name, object),
        "dead_letter": lambda name: Queue.open(queue.log, "more", object, dead_letter=name or cast(Any, 5)),
        "change": lambda name: queue.change(dead_letter=name or cast(Any, 5)),
        "key": lambda name: queue.push(1, key=name),
        "dedup_id": lambda name: queue.push(1, dedup_id=name),
        "pushed": lambda name: queue.pushed(1, key=name),
        "limit_key": lambda name: queue.limit_key(name, 1.0),
        "register": lambda name: queue.register(name),
        "drop": lambda name: queue.drop(name),
        "purge": lambda name: queue.purge(name),
        "stats": lambda name: queue.stats(name),
        "peek": lambda name: queue.peek(group=name),
        "group": lambda name: queue.consume(group=name),
        "who": lambda name: queue.consume(who=name or cast(Any, 5)),
    }
    await _refused(calls, NO_NAMES)
    assert queue.log.appends == before


async def test_times_and_limits_are_finite_numbers(another: Another) -> None:
    queue = await another(shards=1)
    store = BokiStore(queue.log)
    async with queue.consume() as messages:
        calls: dict[str, Callable[[Any], Any]] = {
            "delay_s": lambda number: queue.push(1, delay_s=number),
            "dedup_s": lambda number: Queue.open(queue.log, "more", object, dedup_s=number),
            "lease_s": lambda number: queue.consume(lease_s=number),
            "member_lease_s": lambda number: queue.consume(member_lease_s=number),
            "carry_s": lambda number: queue.consume(carry_s=number),
            "backoff_s": lambda number: queue.handler(store, backoff_s=number),
            "a handler's lease_s": lambda number: queue.handler(store, lease_s=number),
            "again_s": lambda number: Receiving(messages, cast(Any, store), again_s=number),
            "finish_s": lambda number: messages.drain(number),
            "quiet_s": lambda number: queue.redrive(quiet_s=number),
        }
        await _refused(calls, NO_SECONDS)
        await _refused(
            {name: calls[name] for name in ("lease_s", "member_lease_s", "a handler's lease_s")}, [0, 43_201]
        )
        await _refused({"member_lease_s": calls["member_lease_s"]}, [3_601, 15_000])
        rates: dict[str, Callable[[Any], Any]] = {
            "per_second": lambda number: queue.change(limits=Limits(per_second=number)),
            "key_per_second": lambda number: queue.change(limits=Limits(key_per_second=number)),
            "limit_key": lambda number: queue.limit_key("k", number),
        }
        await _refused(rates, [math.nan, math.inf, -1, "5", True, [1]])
        await queue.push(1)
        message = await anext(messages)
        decisions: dict[str, Callable[[Any], Any]] = {
            "nack": lambda number: message.nack(number),
            "within": lambda number: message.within(number),
            "extend": lambda number: message.extend(number),
        }
        await _refused(decisions, NO_SECONDS)
        await message.ack()
    await _refused({"none": lambda none: queue.push(1, delay_s=none)}, [None])
    await _refused({"limits": lambda limits: Queue.open(queue.log, "more", object, limits=limits)}, [5, "x", [1]])
    await _refused({"most": lambda most: queue.redrive(most)}, ["5", 1.5])


async def test_a_pop_waits_for_a_number_of_seconds(another: Another) -> None:
    queue = await another("popped", mode="pop", shards=1)
    await _refused({"timeout": lambda number: queue.pop(timeout=number)}, [math.nan, "5", None])
    await _refused({"shard": lambda shard: queue.pop_from(shard)}, ["0", None, True])
    await queue.push(1)
    assert await queue.pop(timeout=math.inf) == 1


@pytest.mark.parametrize("name", [SURROGATE, 5, b"x"])
async def test_members_and_claims_have_names_of_text(another: Another, name: Any) -> None:
    """Others could not decode their records."""
    queue = await another(shards=1)
    with pytest.raises(InvalidArgument, match="name"):
        Members(queue.log, "group", name)
    with pytest.raises(InvalidArgument, match="name"):
        Fence(queue.log, "t", "f", who=name)
