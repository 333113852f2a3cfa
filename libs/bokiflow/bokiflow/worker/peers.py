"""The workers of a group, as one of them knows them: alive, leaving, or gone.

- A worker that was silent for a lease is dead.
- A worker that is being drained says which workflows it still runs. It gets no partition, and its other workflows may be claimed at once.
  When it runs none, it is gone.
- A worker that starts under the name of an earlier one takes over at once what was claimed under that name before its start. Later claims
  are those of a namesake, which counts as alive; both log a warning.
- Workers that share a `Log` know of each other whether they run, without waiting for a lease.
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
"""Seconds after the end of a lease at which the next round begins."""
NAME_CHARS: Final = 8
"""Characters of the incarnation of a Log in a default name."""

log = get_logger(__name__)


class Peers:
    """The peers of one worker; see the module.

    Attributes:
        name: the name of this start of the worker.
        since: the seqnum as of which it started.
        lease_s: seconds of silence after which a worker is dead.
    """

    def __init__(self, log: Log, group: str, name: str | None, lease_s: float) -> None:
        """`name`: None for a unique one."""
        self._incarnations: Final = log.incarnations
        self._token: Final = log.incarnations.new_token()
        self._stem: Final = name or log.by[:NAME_CHARS] + self._token.removeprefix(log.by)
        self.name: Final = f"{self._stem}.{self._token}"
        self.since = 0
        self.lease_s: Final = lease_s
        self._members: Final = Members(log, group, self.name, lease_s=lease_s)
        self._left: Final[set[str]] = set()
        self._leaving: Final[dict[str, tuple[int, Leaving]]] = {}
        """The newest record of each worker that is being drained, with its seqnum."""
        self._begun_s = 0.0
        self._drained: Final[set[str]] = set()
        """Workers that announced a drain."""
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
        """Return True after a whole lease, when all living workers are known."""
        return asyncio.get_running_loop().time() - self._begun_s > self.lease_s

    def next_look_s(self) -> float:
        """Return the seconds until the next round: three rounds a lease, and one soon after the lease of a worker may expire."""
        beat_s, silent_s = beat_every(self.lease_s), self._members.silent_in()
        return beat_s if silent_s is None else min(beat_s, silent_s + SOON_S)

    def alive(self) -> list[str]:
        """Return workers that were seen within the lease and are not leaving."""
        return [name for name in self._members.alive() if not self.is_leaving(name)]

    def saw_claim(self, name: str, seqnum: int) -> None:
        """Note a claim under a name: that of a predecessor of this worker, if it is older than the start of this one."""
        stem, _, token = name.rpartition(".")
        if seqnum <= self.since and name != self.name and stem == self._stem and not self._incarnations.runs(token):
            self._left.add(name)

    def saw_leaving(self, leaving: Leaving, seqnum: int) -> None:
        """Note that a worker is being drained, or is gone."""
        name = leaving.worker
        self._drained.add(name)
        if not leaving.keeps:
            self._left.add(name)
            self._leaving.pop(name, None)
        elif name not in self._left and seqnum > self._leaving.get(name, (0,))[0]:
            self._leaving[name] = seqnum, leaving

    def warn_of_namesakes(self) -> None:
        """Log a warning, once for each living worker that has the name of this one."""
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
        """Return True if a worker is being drained, or gone: it claims nothing."""
        return name != self.name and (name in self._leaving or self.is_gone(name))

    def was_lost(self, name: str) -> bool:
        """Return True if a worker that is gone was neither drained, nor closed in this process."""
        return name not in self._drained and not self._incarnations.stopped(name.rpartition(".")[2])

    def is_gone(self, name: str, id: str = "") -> bool:
        """Return True if a worker runs nothing, or does not run the workflow `id`. The empty name is always gone."""
        if name == self.name:
            return False
        if id and name in self._leaving and not _still_runs(self._leaving[name][1], id):
            return True
        known = self._incarnations.stopped(name.rpartition(".")[2])
        return not name or known or name in self._left or self._members.dead(name)


def _still_runs(leaving: Leaving, id: str) -> bool:
    return id in leaving.runs if leaving.runs else tags.partition_of(id) in leaving.keeps
