"""Limits on deliveries: how many messages may be in flight and per second. Pure.

- Limits belong to the queue and hold for each group. The owner of a shard enforces its share of them: an equal part of
  the messages in flight, and an equal part of the messages per second. A queue has at most as many shards as messages
  may be in flight.
- The rate is a token bucket of one second's messages, at least one. It begins empty at a takeover, so that a change of
  owners adds nothing.
- Of a key one message is delivered per interval, by the log's clock, regardless of the outcome of the one before. All
  messages of a key have one owner, so keys are not shared out. A new owner does not know when the last message of a key
  was delivered: each key waits for an interval first.
- A key may have a rate of its own in the queue's settings (`queue.limit_key`).
- Messages in flight at a takeover stay in flight: they are redelivered before others.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Final

from boki_common.errors import InvalidArgument
from bokilib.records.arguments import check_number
from bokilib.stacks import shown
from bokiqueue.model.events import Limits

UNLIMITED: Final = 1 << 30
KEY_LEAST: Final = 0.001
"""The lowest rate of a key: an owner need not remember keys for longer than about a quarter of an hour."""
KEY_RATES: Final = 256
"""Keys with a rate of their own; all of them are in the queue's settings."""


def share(in_flight: int, shards: int, shard: int) -> int:
    """Return how many messages of a shard may be in flight: an equal part, and one more in the first shards for the remainder."""
    if not in_flight:
        return UNLIMITED
    return in_flight // shards + (1 if shard < in_flight % shards else 0)


def check_limits(limits: Limits) -> Limits:
    """Return limits; raise InvalidArgument if one is out of range."""
    if not isinstance(limits, Limits):
        raise InvalidArgument(f"expected limits=Limits(...), found {shown(limits)}", found=limits)
    if type(limits.in_flight) is not int or limits.in_flight < 0:
        raise InvalidArgument(f"expected messages in flight, or 0 for no limit, found {limits.in_flight!r}")
    if check_number("messages a second", limits.per_second) < 0:
        raise InvalidArgument(f"expected messages a second, or 0 for no limit, found {limits.per_second!r}")
    check_key_rate(limits.key_per_second)
    return limits


def check_key_rate(per_second: float) -> float:
    """Return a rate of a key; raise InvalidArgument if it is out of range."""
    if check_number("messages a second", per_second) < 0:
        raise InvalidArgument(f"expected messages a second, or 0 for no limit, found {per_second!r}")
    if per_second and per_second < KEY_LEAST:
        raise InvalidArgument(
            f"expected {KEY_LEAST} messages a second of a key at least, found {per_second!r}; use a timer of a workflow for less"
        )
    return per_second


class RateLimit:
    """A token bucket of deliveries. All times are of one monotonic clock."""

    def __init__(self, per_second: float, now_s: float) -> None:
        """Begin with no tokens. `per_second` is 0 for no limit."""
        self.per_second: Final = per_second
        self._most = max(1.0, per_second)
        self._tokens = 0.0
        self._at_s = now_s

    def allowed(self, now_s: float) -> int:
        """Return how many messages may be delivered."""
        if not self.per_second:
            return UNLIMITED
        self._fill(now_s)
        return int(self._tokens + 1e-9)

    def take(self, count: int, now_s: float) -> None:
        """Count delivered messages."""
        if self.per_second:
            self._fill(now_s)
            self._tokens -= count

    def next_s(self, now_s: float) -> float | None:
        """Return the time at which one more message may be delivered; None without a limit."""
        if not self.per_second:
            return None
        self._fill(now_s)
        return now_s + max(0.0, 1.0 - self._tokens) / self.per_second

    def _fill(self, now_s: float) -> None:
        self._tokens = min(self._most, self._tokens + max(0.0, now_s - self._at_s) * self.per_second)
        self._at_s = max(self._at_s, now_s)


class KeyRateLimits:
    """Times at which the next message of each key may be delivered, by the log's clock.

    Invariant: no message of a forgotten key has to wait.
    """

    def __init__(self, per_second: float, since_ms: int, own: Mapping[str, float] | None = None) -> None:
        """Begin without known deliveries.

        Args:
            per_second: the rate of each key, 0 for no limit.
            since_ms: the time at which this owner began.
            own: rates of single keys that differ, 0 for no limit.
        """
        self.own: Mapping[str, float] = own or {}
        self.per_second = per_second
        self._since_ms = since_ms
        self._last_ms: dict[str, int] = {}
        self._over: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._last_ms)

    def _every_ms(self, key: str) -> float:
        per_second = self.own.get(key, self.per_second) if self.own else self.per_second
        return 1000 / per_second if per_second else 0.0

    def due_ms(self, key: str | None, now_ms: int) -> int:
        """Return the time at which a message of a key may be delivered, 0 for now."""
        if key is None or not (every_ms := self._every_ms(key)):
            return 0
        self._forget(now_ms)
        due_ms = self._last_ms.get(key, self._since_ms) + every_ms
        return 0 if due_ms <= now_ms else int(due_ms) + 1

    def take(self, key: str | None, now_ms: int) -> None:
        """Count the delivery of a message of a key."""
        if key is not None and (every_ms := self._every_ms(key)):
            self._last_ms[key] = now_ms
            heappush(self._over, (now_ms + every_ms, key))

    def _forget(self, now_ms: int) -> None:
        """Forget keys whose interval has passed."""
        while self._over and self._over[0][0] <= now_ms:
            _, key = heappop(self._over)
            last_ms = self._last_ms.get(key)
            if last_ms is None:
                continue
            if last_ms + self._every_ms(key) <= now_ms:
                del self._last_ms[key]
            else:
                heappush(self._over, (last_ms + self._every_ms(key), key))
