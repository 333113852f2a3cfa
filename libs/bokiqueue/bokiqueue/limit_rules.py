"""How much may be handed out now. Pure.

- Limits are the queue's, and hold for each group. The owner of a shard enforces its share: of messages in flight an equal part (a
  queue has at most as many shards as may be in flight), of messages a second an equal part.
- The rate is a token bucket of one second's messages, at least one. It begins empty at a takeover, so that owners that change do not
  add up to more.
- Of a key one message is handed out in each of its intervals, by the log's clock, whatever became of the one before. All keys of a shard
  have one owner, so none has a share. A new owner knows of none when its last was: each waits for an interval first.
- What is in flight at a takeover counts as in flight: it is handed out again before anything else.
"""

from __future__ import annotations

from collections import deque

from boki_common.errors import InvalidArgument
from bokiqueue.events import Limits

UNLIMITED = 1 << 30
KEY_LEAST = 0.001
"""So that an owner need not remember keys for longer than a quarter of an hour or so."""


def share(in_flight: int, shards: int, shard: int) -> int:
    """How many messages of a shard may be in flight: an equal part, the first ones take what remains."""
    if not in_flight:
        return UNLIMITED
    return in_flight // shards + (1 if shard < in_flight % shards else 0)


def check_limits(limits: Limits) -> Limits:
    """Raises InvalidArgument."""
    if type(limits.in_flight) is not int or limits.in_flight < 0:
        raise InvalidArgument(f"expected messages in flight, or 0 for no limit, found {limits.in_flight!r}")
    for rate in (limits.per_second, limits.key_per_second):
        if not 0 <= rate < float("inf"):
            raise InvalidArgument(f"expected messages a second, or 0 for no limit, found {rate!r}")
    if limits.key_per_second and limits.key_per_second < KEY_LEAST:
        raise InvalidArgument(
            f"expected {KEY_LEAST} messages a second of a key at least, found {limits.key_per_second!r}; what is rarer is a timer"
        )
    return limits


class Rate:
    """A token bucket: how many messages may be handed out now. All times are of one monotonic clock."""

    def __init__(self, per_second: float, now_s: float) -> None:
        """`per_second`: 0: no limit."""
        self._per_second = per_second
        self._most = max(1.0, per_second)
        self._tokens = 0.0
        self._at_s = now_s

    def allowed(self, now_s: float) -> int:
        """How many may be handed out."""
        if not self._per_second:
            return UNLIMITED
        self._fill(now_s)
        return int(self._tokens + 1e-9)

    def take(self, count: int, now_s: float) -> None:
        """So many were."""
        if self._per_second:
            self._fill(now_s)
            self._tokens -= count

    def next_s(self, now_s: float) -> float | None:
        """When one more may be handed out; None: no limit."""
        if not self._per_second:
            return None
        self._fill(now_s)
        return now_s + max(0.0, 1.0 - self._tokens) / self._per_second

    def _fill(self, now_s: float) -> None:
        self._tokens = min(self._most, self._tokens + max(0.0, now_s - self._at_s) * self._per_second)
        self._at_s = max(self._at_s, now_s)


class KeyRate:
    """When the next message of a key may be handed out. Times are of the log. Invariant: of a key that is not known none is due later."""

    def __init__(self, per_second: float, since_ms: int) -> None:
        """`per_second`: 0: no limit. `since_ms`: when this owner began."""
        self._every_ms = 1000 / per_second if per_second else 0.0
        self._first_ms = since_ms + self._every_ms
        self._next_ms: dict[str, float] = {}
        self._order: deque[tuple[float, str]] = deque()

    def __len__(self) -> int:
        return len(self._next_ms)

    def due_ms(self, key: str | None, now_ms: int) -> int:
        """When a message of a key may be handed out, 0: now."""
        if not self._every_ms or key is None:
            return 0
        self._forget(now_ms)
        due_ms = max(self._next_ms.get(key, 0.0), self._first_ms)
        return 0 if due_ms <= now_ms else int(due_ms) + 1

    def take(self, key: str | None, now_ms: int) -> None:
        """One is."""
        if self._every_ms and key is not None:
            self._next_ms[key] = now_ms + self._every_ms
            self._order.append((self._next_ms[key], key))

    def _forget(self, now_ms: int) -> None:
        """Keys whose interval is over."""
        while self._order and self._order[0][0] <= now_ms:
            due_ms, key = self._order.popleft()
            if self._next_ms.get(key) == due_ms:
                del self._next_ms[key]
