"""How much may be handed out now. Pure.

- Limits are the queue's, and hold for each group. The owner of a shard enforces its share: of messages in flight an equal part (a
  queue has at most as many shards as may be in flight), of messages a second an equal part.
- The rate is a token bucket of one second's messages, at least one. It begins empty at a takeover, so that owners that change do not
  add up to more.
- Of a key one message is handed out in each of its intervals, by the log's clock, whatever became of the one before. All keys of a shard
  have one owner, so none has a share. A new owner knows of none when its last was: each waits for an interval first.
- A key may have a rate of its own, in the queue's settings, which may be changed (`queue.limit_key`).
- What is in flight at a takeover counts as in flight: it is handed out again before anything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Final

from boki_common.errors import InvalidArgument
from bokiqueue.events import Limits

UNLIMITED: Final = 1 << 30
KEY_LEAST: Final = 0.001
"""So that an owner need not remember keys for longer than a quarter of an hour or so."""
KEY_RATES: Final = 256
"""Keys with a rate of their own: all are in the queue's settings."""


def share(in_flight: int, shards: int, shard: int) -> int:
    """How many messages of a shard may be in flight: an equal part, the first ones take what remains."""
    if not in_flight:
        return UNLIMITED
    return in_flight // shards + (1 if shard < in_flight % shards else 0)


def check_limits(limits: Limits) -> Limits:
    """Raises InvalidArgument."""
    if type(limits.in_flight) is not int or limits.in_flight < 0:
        raise InvalidArgument(f"expected messages in flight, or 0 for no limit, found {limits.in_flight!r}")
    if not 0 <= limits.per_second < float("inf"):
        raise InvalidArgument(f"expected messages a second, or 0 for no limit, found {limits.per_second!r}")
    check_key_rate(limits.key_per_second)
    return limits


def check_key_rate(per_second: float) -> float:
    """Raises InvalidArgument."""
    if not 0 <= per_second < float("inf"):
        raise InvalidArgument(f"expected messages a second, or 0 for no limit, found {per_second!r}")
    if per_second and per_second < KEY_LEAST:
        raise InvalidArgument(
            f"expected {KEY_LEAST} messages a second of a key at least, found {per_second!r}; what is rarer is a timer"
        )
    return per_second


class Rate:
    """A token bucket: how many messages may be handed out now. All times are of one monotonic clock."""

    def __init__(self, per_second: float, now_s: float) -> None:
        """`per_second`: 0: no limit."""
        self.per_second: Final = per_second
        self._most = max(1.0, per_second)
        self._tokens = 0.0
        self._at_s = now_s

    def allowed(self, now_s: float) -> int:
        """How many may be handed out."""
        if not self.per_second:
            return UNLIMITED
        self._fill(now_s)
        return int(self._tokens + 1e-9)

    def take(self, count: int, now_s: float) -> None:
        """So many were."""
        if self.per_second:
            self._fill(now_s)
            self._tokens -= count

    def next_s(self, now_s: float) -> float | None:
        """When one more may be handed out; None: no limit."""
        if not self.per_second:
            return None
        self._fill(now_s)
        return now_s + max(0.0, 1.0 - self._tokens) / self.per_second

    def _fill(self, now_s: float) -> None:
        self._tokens = min(self._most, self._tokens + max(0.0, now_s - self._at_s) * self.per_second)
        self._at_s = max(self._at_s, now_s)


class KeyRate:
    """When the next message of a key may be handed out. Times are of the log. Invariant: of a key that is not known none is due later."""

    def __init__(self, per_second: float, since_ms: int, own: Mapping[str, float] | None = None) -> None:
        """`per_second`: 0: no limit. `since_ms`: when this owner began. `own`: of single keys, where it is another; 0: no limit."""
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
        """When a message of a key may be handed out, 0: now."""
        if key is None or not (every_ms := self._every_ms(key)):
            return 0
        self._forget(now_ms)
        due_ms = self._last_ms.get(key, self._since_ms) + every_ms
        return 0 if due_ms <= now_ms else int(due_ms) + 1

    def take(self, key: str | None, now_ms: int) -> None:
        """One is."""
        if key is not None and (every_ms := self._every_ms(key)):
            self._last_ms[key] = now_ms
            heappush(self._over, (now_ms + every_ms, key))

    def _forget(self, now_ms: int) -> None:
        """Keys whose interval is over."""
        while self._over and self._over[0][0] <= now_ms:
            _, key = heappop(self._over)
            last_ms = self._last_ms.get(key)
            if last_ms is None:
                continue
            if last_ms + self._every_ms(key) <= now_ms:
                del self._last_ms[key]
            else:
                heappush(self._over, (last_ms + self._every_ms(key), key))
