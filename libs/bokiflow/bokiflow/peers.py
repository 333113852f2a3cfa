"""Who of a group still runs workflows, as far as one worker knows.

- Who was silent for a lease is dead; who gave up a partition has left.
- A worker that begins again under the name that it had takes what its predecessor held: whatever was claimed under this name before
  it began. What is claimed under it later is a namesake's, and two that have one name must not fight.
- Of those that share its Log it is known whether they run: who has ended need not be silent for a lease, and who runs is a peer.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final

from bokilib.lease_rules import beat_every
from bokilib.log import Log
from bokilib.members import Members

SOON_S: Final = 0.05
NAME_CHARS: Final = 8
"""Of a Log's incarnation, where nobody gave a name."""


class Peers:
    """See the module.

    Attributes:
        name: of this incarnation. lease_s: who is silent for so long is dead. since: the place in the log at which it began.
    """

    def __init__(self, log: Log, group: str, name: str | None, lease_s: float) -> None:
        """`name`: None: one that nobody else has."""
        self._incarnations: Final = log.incarnations
        self._token: Final = log.incarnations.give()
        self._stem: Final = name or log.by[:NAME_CHARS] + self._token.removeprefix(log.by)
        self.name: Final = f"{self._stem}.{self._token}"
        self.since = 0
        self.lease_s: Final = lease_s
        self._members: Final = Members(log, group, self.name, lease_s=lease_s)
        self._left: Final[set[str]] = set()
        self._begun_s = 0.0

    async def __aenter__(self) -> Peers:
        self._begun_s = asyncio.get_running_loop().time()
        self._incarnations.began(self._token)
        await self._members.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._incarnations.ended(self._token)
        await self._members.__aexit__(kind, error, trace)

    def settled(self) -> bool:
        """Whether a whole lease was listened to, so that everybody alive is known."""
        return asyncio.get_running_loop().time() - self._begun_s > self.lease_s

    def look_in(self) -> float:
        """Seconds until the next look at who is there: soon after somebody may have been silent for a lease, and three times a lease."""
        beat_s, silent_s = beat_every(self.lease_s), self._members.silent_in()
        return beat_s if silent_s is None else min(beat_s, silent_s + SOON_S)

    def alive(self) -> list[str]:
        """Who was seen within the lease, and did not leave."""
        return [name for name in self._members.alive() if not self.over(name)]

    def claimed(self, name: str, seqnum: int) -> None:
        """Somebody claimed something, there."""
        stem, _, token = name.rpartition(".")
        if seqnum <= self.since and name != self.name and stem == self._stem and not self._incarnations.runs(token):
            self._left.add(name)

    def left(self, name: str) -> None:
        """Somebody gave up what he had."""
        self._left.add(name)

    def over(self, name: str) -> bool:
        """Whether whoever has this name runs nothing any more; nobody ("") never did."""
        if name == self.name:
            return False
        known = self._incarnations.over(name.rpartition(".")[2])
        return not name or known or name in self._left or self._members.dead(name)
