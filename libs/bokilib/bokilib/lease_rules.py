"""Who is alive, by observed silence. Pure.

- A member is alive for others while they have *seen* a heartbeat of it within `lease` of their own monotonic clock. No clock of
  another machine is read: one that is an hour ahead would end every lease at once.
- So liveness is a hint, and safety is the fence: who was taken for dead wrongly loses its fence, and nothing else.
- A member that leaves says so in its heartbeats: nothing is dealt to it any more, at once. What it has it keeps until it gives it up.
- A member stops acting by itself when its last heartbeat that was acknowledged left more than a lease ago: what it counts
  from is when it was *sent*, since nobody can have seen it earlier.
"""

from __future__ import annotations

from typing import Final

LEASE_S: Final = 15.0
BEATS: Final = 3
"""Heartbeats a lease."""
LATE_S: Final = 1.0


def stood_still(due_s: float, fired_s: float) -> bool:
    """Return whether a timer fired so late that the process stood still (SIGSTOP, a sleeping machine), or code blocked its loop.

    Code whose time the timer measures had no time meanwhile. Code that blocks the loop itself looks the same, so forgive that once only.
    """
    return fired_s - due_s > LATE_S


def beat_every(lease_s: float) -> float:
    """Seconds between two heartbeats."""
    return lease_s / BEATS


def may_act(acked_sent_s: float | None, now_s: float, lease_s: float) -> bool:
    """Whether a member may still act: its last acknowledged heartbeat was sent within the lease."""
    return acked_sent_s is not None and now_s - acked_sent_s <= lease_s


class Observer:
    """What one process has seen of the others. All times are of its own monotonic clock."""

    def __init__(self, lease_s: float, now_s: float) -> None:
        """`now_s`: since then it listens; before a lease is over it knows of nobody that he is dead."""
        self._lease_s = lease_s
        self._since_s = now_s
        self._last_seen: dict[str, float] = {}
        self._beats: dict[str, int] = {}
        self._leaving: set[str] = set()

    def seen(self, member: str, seqnum: int, now_s: float, *, leaving: bool = False) -> None:
        """Take note of a heartbeat that was read. One that was read before says nothing new.

        Args:
            leaving: it says that the member leaves. A member that begins again under its name stays.
        """
        if seqnum > self._beats.get(member, 0):
            self._beats[member] = seqnum
            self._last_seen[member] = now_s
            if leaving:
                self._leaving.add(member)
            else:
                self._leaving.discard(member)

    def alive(self, now_s: float) -> list[str]:
        """Return the members that were seen within the lease and do not leave, by name."""
        seen = (member for member, seen_s in self._last_seen.items() if now_s - seen_s <= self._lease_s)
        return sorted(member for member in seen if member not in self._leaving)

    def dead(self, member: str, now_s: float) -> bool:
        """Whether nothing was seen of a member for a whole lease, in which this process was listening."""
        return now_s - max(self._last_seen.get(member, self._since_s), self._since_s) > self._lease_s

    def silent_in(self, now_s: float) -> float | None:
        """Seconds until it may be known of somebody that he is dead, who is not known to be; None: there is nobody."""
        since_s = [self._since_s, *self._last_seen.values()]
        return min((left_s for one in since_s if (left_s := one + self._lease_s - now_s) >= 0), default=None)
