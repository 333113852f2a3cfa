"""How much may be handed out now. Pure.

- Limits are the queue's, and hold for each group. The owner of a shard enforces its share: of messages in flight an equal part (a
  queue has at most as many shards as may be in flight), of messages a second an equal part.
- The rate is a token bucket of one second's messages, at least one. It begins empty at a takeover, so that owners that change do not
  add up to more.
- What is in flight at a takeover counts as in flight: it is handed out again before anything else.
"""

from __future__ import annotations

from boki_common.errors import InvalidArgument
from bokiqueue.events import Limits

UNLIMITED = 1 << 30


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
