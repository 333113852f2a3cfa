"""Who is alive, by observed silence. Pure.

- A member is alive for others while they have *seen* a heartbeat of it within its lease, by their own monotonic clock. No clock of
  another machine is read: one that is an hour ahead would end every lease at once.
- The lease is the member's own, which its heartbeats name. So members whose leases differ, as while a new setting is deployed, do not
  take each other for dead. Where it is not known (heartbeats of older programs), the observer's own lease counts.
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
LOOP_LATE: Final = "event loop stood still: code blocked it, or the process was stopped"
"""Event of the log line of a member whose loop ran late (`loop_late_s`)."""


def stood_still(due_s: float, fired_s: float) -> bool:
    """Return whether a timer fired so late that the process stood still (SIGSTOP, a sleeping machine), or code blocked its loop.

    Code whose time the timer measures had no time meanwhile. Code that blocks the loop itself looks the same, so forgive that once only.
    """
    return fired_s - due_s > LATE_S


def loop_late_s(due_s: float, fired_s: float, lease_s: float) -> float:
    """Return by how many seconds a member's timer fired late if its loop stood still for more than a third of the lease; else 0."""
    late_s = fired_s - due_s
    return late_s if stood_still(due_s, fired_s) and late_s > beat_every(lease_s) else 0.0


def beat_every(lease_s: float) -> float:
    """Seconds between two heartbeats."""
    return lease_s / BEATS


def may_act(acked_sent_s: float | None, now_s: float, lease_s: float) -> bool:
    """Whether a member may still act: its last acknowledged heartbeat was sent within the lease."""
    return acked_sent_s is not None and now_s - acked_sent_s <= lease_s


class Observer:
    """What one process has seen of the others. All times are of its own monotonic clock."""

    def __init__(self, lease_s: float, now_s: float, leases: dict[str, float] | None = None) -> None:
        """
        Args:
            lease_s: of members whose own is not known. now_s: since then it listens; before a lease has passed it takes no member for dead.
            leases: of members whose own is known already; more are added to it.
        """
        self._lease_s = lease_s
        self._since_s = now_s
        self._leases = {} if leases is None else leases
        self._last_seen: dict[str, float] = {}
        self._beats: dict[str, int] = {}
        self._leaving: set[str] = set()

    def seen(self, member: str, seqnum: int, now_s: float, *, leaving: bool = False, lease_s: float = 0.0) -> None:
        """Take note of a heartbeat that was read. One that was read before says nothing new.

        Args:
            leaving: it says that the member leaves. A member that begins again under its name stays.
            lease_s: the lease that it names, 0 if it names none.
        """
        if seqnum > self._beats.get(member, 0):
            self._beats[member] = seqnum
            self._last_seen[member] = now_s
            self.told(member, lease_s)
            if leaving:
                self._leaving.add(member)
            else:
                self._leaving.discard(member)

    def told(self, member: str, lease_s: float) -> None:
        """Take note of a member's lease, 0 if it names none, without a sign that the member is alive."""
        if lease_s > 0:
            self._leases[member] = lease_s
        else:
            self._leases.pop(member, None)

    def alive(self, now_s: float) -> list[str]:
        """Return the members that were seen within their lease and do not leave, by name."""
        seen = (member for member, seen_s in self._last_seen.items() if now_s - seen_s <= self._lease_of(member))
        return sorted(member for member in seen if member not in self._leaving)

    def dead(self, member: str, now_s: float) -> bool:
        """Return whether nothing was seen of a member for its whole lease, in which this process was listening."""
        return now_s - self._silent_since(member) > self._lease_of(member)

    def silent_in(self, now_s: float) -> float | None:
        """Return in how many seconds a member may be taken for dead that is not yet; None: there is none."""
        ends_s = [self._since_s + self._lease_s]
        ends_s += [self._silent_since(one) + self._lease_of(one) for one in {**self._last_seen, **self._leases}]
        return min((left_s for end_s in ends_s if (left_s := end_s - now_s) >= 0), default=None)

    def _silent_since(self, member: str) -> float:
        return max(self._last_seen.get(member, self._since_s), self._since_s)

    def _lease_of(self, member: str) -> float:
        return self._leases.get(member, self._lease_s)
