"""Leases of members, judged by observed silence. Pure.

- For an observer a member is alive while the observer has *read* a heartbeat of it within the member's lease, by the observer's own
  monotonic clock. Clocks of other machines are not compared: one that is an hour ahead would end every lease at once.
- Each member has its own lease, which its heartbeats name. So members with different leases, as during the deployment of a new
  setting, do not take each other for dead. If a lease is unknown (heartbeats of older programs), the observer's own lease counts.
- Liveness is a hint; safety comes from the fence. A member that is wrongly taken for dead loses its fence and nothing else.
- A leaving member says so in its heartbeats, and is assigned no more work. It keeps the work that it has until it releases it.
- A member stops acting by itself once its last acknowledged heartbeat was *sent* more than a lease ago. The sending counts, since no
  observer can have read the heartbeat earlier.
"""

from __future__ import annotations

from typing import Final

LEASE_S: Final = 15.0
BEATS: Final = 3
"""Heartbeats per lease."""
LEAVE_S: Final = 5.0
"""Seconds in which a member that ends tells the others and releases its partitions. If that fails, they notice its silence."""
LATE_S: Final = 1.0
LOOP_LATE: Final = "event loop stood still: code blocked it, or the process was stopped"
"""The log line of a member whose loop stood still (`stood_still_s`)."""


def stood_still(due_s: float, fired_s: float) -> bool:
    """Return whether a timer fired so late that the process stood still (SIGSTOP, a sleeping machine), or code blocked its loop.

    Code whose time-out the timer measures could not run meanwhile, so a caller may extend the time-out once. Only once, since code that
    blocks the loop itself looks the same.
    """
    return fired_s - due_s > LATE_S


def stood_still_s(seen_s: float, now_s: float, lease_s: float) -> float:
    """Return for how many seconds a member's loop stood still if that is more than a third of the lease; else 0.

    Args:
        seen_s: when the loop was seen running last.
    """
    still_s = now_s - seen_s
    return still_s if still_s > max(LATE_S, beat_every(lease_s)) else 0.0


def beat_every(lease_s: float) -> float:
    """Return the seconds between two heartbeats."""
    return lease_s / BEATS


def may_act(acked_sent_s: float | None, now_s: float, lease_s: float) -> bool:
    """Return whether a member may still act: its last acknowledged heartbeat was sent within the lease."""
    return acked_sent_s is not None and now_s - acked_sent_s <= lease_s


class Observer:
    """The heartbeats that one process has read of the members of a group. All times are of its own monotonic clock."""

    def __init__(self, lease_s: float, now_s: float, leases: dict[str, float] | None = None) -> None:
        """Create an observer that has read no heartbeat.

        Args:
            lease_s: the lease of members whose own lease is unknown.
            now_s: when the observer began to listen. It takes no member for dead before a lease has passed since then.
            leases: known leases by member. The observer adds those that it reads.
        """
        self._lease_s = lease_s
        self._since_s = now_s
        self._leases = {} if leases is None else leases
        self._last_seen: dict[str, float] = {}
        self._beats: dict[str, int] = {}
        self._leaving: set[str] = set()

    def seen(self, member: str, seqnum: int, now_s: float, *, leaving: bool = False, lease_s: float = 0.0) -> None:
        """Record a heartbeat. One at or below the newest recorded seqnum of the member is ignored.

        Args:
            member: the sender.
            seqnum: of the heartbeat.
            now_s: when it was read.
            leaving: the heartbeat says that the member leaves. A later one without it makes the member stay.
            lease_s: the lease that the heartbeat names, 0 if it names none.
        """
        if seqnum > self._beats.get(member, 0):
            self._beats[member] = seqnum
            self._last_seen[member] = now_s
            self.set_lease(member, lease_s)
            if leaving:
                self._leaving.add(member)
            else:
                self._leaving.discard(member)

    def set_lease(self, member: str, lease_s: float) -> None:
        """Record a member's lease, 0 if it names none, without counting the member as alive."""
        if lease_s > 0:
            self._leases[member] = lease_s
        else:
            self._leases.pop(member, None)

    def alive(self, now_s: float) -> list[str]:
        """Return the members with a heartbeat within their lease that are not leaving, sorted by name."""
        seen = (member for member, seen_s in self._last_seen.items() if now_s - seen_s <= self._lease_of(member))
        return sorted(member for member in seen if member not in self._leaving)

    def dead(self, member: str, now_s: float) -> bool:
        """Return whether this process listened for a whole lease of a member without reading a heartbeat of it."""
        return now_s - self._silent_since(member) > self._lease_of(member)

    def silent_in(self, now_s: float) -> float | None:
        """Return the seconds until the next living member may be taken for dead, or None if all are dead already."""
        ends_s = [self._since_s + self._lease_s]
        ends_s += [self._silent_since(one) + self._lease_of(one) for one in {**self._last_seen, **self._leases}]
        return min((left_s for end_s in ends_s if (left_s := end_s - now_s) >= 0), default=None)

    def _silent_since(self, member: str) -> float:
        return max(self._last_seen.get(member, self._since_s), self._since_s)

    def _lease_of(self, member: str) -> float:
        return self._leases.get(member, self._lease_s)
