"""Who of a group still runs workflows, as far as one worker knows.

- Who was silent for a lease is dead.
- A worker that is being drained says which workflows it still runs. No partition is dealt to it any more, and its other workflows may be
  claimed at once. When it runs none, it has left.
- A worker that begins again under the name that it had takes what its predecessor held: whatever was claimed under this name before
  it began. What is claimed under it later is a namesake's, and two that have one name must not fight. Both warn of the other.
- Of those that share its Log it is known whether they run: who has ended need not be silent for a lease, and who runs is a peer.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final

from boki_common.logs import get_logger
from bokiflow.model.flow_events import Leaving
from bokilib.append.log import Log
from bokilib.follow.lease_rules import beat_every
from bokilib.follow.members import Members
from bokilib.records import tags

SOON_S: Final = 0.05
NAME_CHARS: Final = 8
"""Of a Log's incarnation, where nobody gave a name."""

log = get_logger(__name__)


class Peers:
    """See the module.

    Attributes:
        name: of this incarnation. lease_s: who is silent for so long is dead. since: the place in the log at which it began.
    """

    def __init__(self, log: Log, group: str, name: str | None, lease_s: float) -> None:
        """`name`: None: one that nobody else has."""
        self._incarnations: Final = log.incarnations
        self._token: Final = log.incarnations.new_token()
        self._stem: Final = name or log.by[:NAME_CHARS] + self._token.removeprefix(log.by)
        self.name: Final = f"{self._stem}.{self._token}"
        self.since = 0
        self.lease_s: Final = lease_s
        self._members: Final = Members(log, group, self.name, lease_s=lease_s)
        self._left: Final[set[str]] = set()
        self._leaving: Final[dict[str, tuple[int, Leaving]]] = {}
        """Workers that are being drained: the newest record of each that says so, and its seqnum."""
        self._begun_s = 0.0
        self._drained: Final[set[str]] = set()
        """Workers that said that they are being drained, or have left."""
        self._warned: Final[set[str]] = set()

    async def __aenter__(self) -> Peers:
        self._begun_s = asyncio.get_running_loop().time()
        self._incarnations.start(self._token)
        await self._members.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._incarnations.stop(self._token)
        await self._members.__aexit__(kind, error, trace)

    def settled(self) -> bool:
        """Whether a whole lease was listened to, so that everybody alive is known."""
        return asyncio.get_running_loop().time() - self._begun_s > self.lease_s

    def next_look_s(self) -> float:
        """Seconds until the next look at who is there: soon after somebody may have been silent for a lease, and three times a lease."""
        beat_s, silent_s = beat_every(self.lease_s), self._members.silent_in()
        return beat_s if silent_s is None else min(beat_s, silent_s + SOON_S)

    def alive(self) -> list[str]:
        """Return the workers that were seen within the lease, and do not leave."""
        return [name for name in self._members.alive() if not self.is_leaving(name)]

    def saw_claim(self, name: str, seqnum: int) -> None:
        """Somebody claimed something, there."""
        stem, _, token = name.rpartition(".")
        if seqnum <= self.since and name != self.name and stem == self._stem and not self._incarnations.runs(token):
            self._left.add(name)

    def saw_leaving(self, leaving: Leaving, seqnum: int) -> None:
        """Note that a worker is being drained, or has left."""
        name = leaving.worker
        self._drained.add(name)
        if not leaving.keeps:
            self._left.add(name)
            self._leaving.pop(name, None)
        elif name not in self._left and seqnum > self._leaving.get(name, (0,))[0]:
            self._leaving[name] = seqnum, leaving

    def warn_of_namesakes(self) -> None:
        """Warn, once of each, of living workers that have the name of this one: each takes the other for its own predecessor."""
        for name in self._members.alive():
            if name.rpartition(".")[0] == self._stem and name not in {self.name, *self._drained, *self._warned}:
                self._warned.add(name)
                log.warning(
                    "two workers have one name: each takes partitions from the other; give each a name of its own",
                    name=self._stem,
                    worker=self.name,
                    other=name,
                )

    def is_leaving(self, name: str) -> bool:
        """Return whether a worker takes nothing any more: it is being drained, or gone."""
        return name != self.name and (name in self._leaving or self.is_gone(name))

    def was_lost(self, name: str) -> bool:
        """Return whether a worker that runs nothing any more ended without a word: it was not drained, nor closed in this process."""
        return name not in self._drained and not self._incarnations.stopped(name.rpartition(".")[2])

    def is_gone(self, name: str, id: str = "") -> bool:
        """Return whether a worker runs nothing any more, or does not run a workflow; "", no worker, never did."""
        if name == self.name:
            return False
        if id and name in self._leaving and not _still_runs(self._leaving[name][1], id):
            return True
        known = self._incarnations.stopped(name.rpartition(".")[2])
        return not name or known or name in self._left or self._members.dead(name)


def _still_runs(leaving: Leaving, id: str) -> bool:
    return id in leaving.runs if leaving.runs else tags.partition_of(id) in leaving.keeps
