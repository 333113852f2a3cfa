"""The rounds of a member: when it looks at the members and the claims of its group.

- A round is due three times a lease, and soon after the lease of a member may expire, so that its partitions are taken at once.
- A round begins at once when claims or members changed (`wake`). Such a round does not delay the next one that is due.
- After an error of the log, the next round tries again.
- A timer sees the event loop run `PULSES` times between two heartbeats. If it fires so late that the loop stood still
  (`lease_rules.stood_still_s`), that is reported with the time since the loop was seen last, whatever blocked it and whenever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from boki_common.errors import BokiError
from bokilib.follow import lease_rules

SOON_S: Final = 0.05
"""Seconds after the end of a lease at which the next round is due."""
PULSES: Final = 10
LEAST_PULSE_S: Final = lease_rules.LATE_S / PULSES
"""Seconds between two pulses, at least: a loop that is late for less than `LATE_S` is not late."""


class Rounds:
    """The rounds of one member; see the module. They belong to one event loop."""

    def __init__(
        self,
        lease_s: float,
        silent_in: Callable[[], float | None],
        late: Callable[[float, float], None],
        *,
        every_s: float | None = None,
    ) -> None:
        """Prepare the rounds.

        Args:
            lease_s: the member's lease.
            silent_in: returns the seconds until the lease of a member may expire, or None (`Members.silent_in`).
            late: called if the event loop stood still, with the time at which it was seen running last, by the loop's clock, and the
                seconds since then. It logs what may have blocked the loop.
            every_s: seconds between two rounds that are due; by default those between two heartbeats.
        """
        self._lease_s: Final = lease_s
        self._every_s: Final = lease_rules.beat_every(lease_s) if every_s is None else every_s
        self._silent_in: Final = silent_in
        self._late: Final = late
        self._woken: Final = asyncio.Event()
        self._pulse_s: Final = max(LEAST_PULSE_S, lease_rules.beat_every(lease_s) / PULSES)
        self._seen_s = 0.0
        self._pulse: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Begin a round now, or when the current one ends."""
        self._woken.set()

    def next_in_s(self) -> float:
        """Return the seconds from one round that is due to the next one."""
        silent_s = self._silent_in()
        return self._every_s if silent_s is None else min(self._every_s, silent_s + SOON_S)

    async def run(self, look: Callable[[bool], Awaitable[None]], failed: Callable[[BokiError], None]) -> None:
        """Run rounds until cancelled, the first one when it is due.

        Args:
            look: a round, with True if it was due.
            failed: called with an error of a round; it logs the error, or raises it to end the rounds.
        """
        due_s = _now() + self.next_in_s()
        self._see(_now())
        try:
            while True:
                is_due = await self._wait(due_s)
                try:
                    await look(is_due)
                except BokiError as error:
                    failed(error)
                if is_due:
                    due_s = _now() + self.next_in_s()
        finally:
            if self._pulse is not None:
                self._pulse.cancel()

    def _see(self, since_s: float) -> None:
        """Note that the loop runs now, and report if it stood still since it was seen last."""
        self._seen_s = _now()
        self._pulse = asyncio.get_running_loop().call_later(self._pulse_s, lambda: self._see(self._seen_s))
        still_s = lease_rules.stood_still_s(since_s, self._seen_s, self._lease_s)
        if still_s:
            self._late(since_s, still_s)

    async def _wait(self, due_s: float) -> bool:
        """Wait until a round is due, or begins because of a change; return True if it is due."""
        try:
            async with asyncio.timeout_at(due_s):
                await self._woken.wait()
        except TimeoutError:
            is_due = True
        else:
            is_due = _now() >= due_s
        self._woken.clear()
        return is_due


def _now() -> float:
    return asyncio.get_running_loop().time()
