"""The members of a group, as one of them knows them: alive, leaving, or gone.

- A member that was silent for a lease is dead.
- A member that is leaving says which of its work it still has. It gets no partition, and its other work may be claimed at once. When it has
  none, it is gone.
- Each start of a member has a name of its own. A member that starts under the name of an earlier one takes over at once what was claimed
  under that name before its start. Later claims are those of a namesake, which counts as alive.
- Members that share a `Log` know of each other whether they run, without waiting for a lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final, NamedTuple

from bokilib.append.log import Log
from bokilib.follow.members import Members

NAME_CHARS: Final = 8
"""Characters of the incarnation of a Log in a default name."""


class _Leaving(NamedTuple):
    """The newest record of a member that is leaving: its seqnum, and whether the member still has some work."""

    seqnum: int
    has: Callable[[str], bool]


class Peers:
    """The peers of one member; see the module.

    Attributes:
        name: the name of this start of the member.
        since: the seqnum as of which it started.
        lease_s: seconds of silence after which a member is dead.
    """

    def __init__(
        self,
        log: Log,
        group: str,
        name: str | None,
        lease_s: float,
        names: Callable[[], Iterable[str]] | None = None,
        full: Callable[[], Iterable[int]] | None = None,
    ) -> None:
        """`name`: None for a unique one. `names`, `full`: see `Members`."""
        self._incarnations: Final = log.incarnations
        self._token: Final = log.incarnations.new_token()
        self._stem: Final = name or log.by[:NAME_CHARS] + self._token.removeprefix(log.by)
        self.name: Final = f"{self._stem}.{self._token}"
        self.since = 0
        self.lease_s: Final = lease_s
        self._members: Final = Members(log, group, self.name, lease_s=lease_s, names=names, full=full)
        self._left: Final[set[str]] = set()
        self._leaving: Final[dict[str, _Leaving]] = {}
        self._begun_s = 0.0
        self._drained: Final[set[str]] = set()
        """Members that announced that they leave."""
        self._told: Final[set[str]] = set()
        """Namesakes that were returned."""

    async def __aenter__(self) -> Peers:
        self._begun_s = asyncio.get_running_loop().time()
        self._incarnations.start(self._token)
        await self._members.__aenter__()
        return self

    def tell(self) -> None:
        """Append a heartbeat soon (`Members.tell`)."""
        self._members.tell()

    def stop(self) -> None:
        """Send no heartbeat any more (`Members.stop`), before the member leaves."""
        self._members.stop()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._incarnations.stop(self._token)
        await self._members.__aexit__(kind, error, trace)

    @property
    def failed(self) -> Exception | None:
        """The error after which this member does not show that it is alive any more (`Members.failed`); None before."""
        return self._members.failed

    def fail(self, error: Exception) -> None:
        """Send no heartbeat any more: others take over after a lease (`Members.fail`)."""
        self._members.fail(error)

    def settled(self) -> bool:
        """Return True after a whole lease, when all living members are known."""
        return asyncio.get_running_loop().time() - self._begun_s > self.lease_s

    def silent_in(self) -> float | None:
        """Return the seconds until the lease of a member may expire, or None if there is none (`Members.silent_in`)."""
        return self._members.silent_in()

    def alive(self) -> list[str]:
        """Return members that were seen within the lease and are not leaving."""
        return [name for name in self._members.alive() if not self.is_leaving(name)]

    def saw_claim(self, name: str, seqnum: int) -> None:
        """Note a claim under a name: that of a predecessor of this member, if it is older than the start of this one."""
        stem, _, token = name.rpartition(".")
        if seqnum <= self.since and name != self.name and stem == self._stem and not self._incarnations.runs(token):
            self._left.add(name)

    def saw_leaving(self, name: str, seqnum: int, has: Callable[[str], bool] | None = None) -> None:
        """Note that a member is leaving, or is gone.

        Args:
            name: the member.
            seqnum: of the record that says so. Of a member that is not gone the newest one counts.
            has: returns True for work that the member still has; None if it has none.
        """
        self._drained.add(name)
        if has is None:
            self._left.add(name)
            self._leaving.pop(name, None)
        elif name not in self._left and (name not in self._leaving or seqnum > self._leaving[name].seqnum):
            self._leaving[name] = _Leaving(seqnum, has)

    def new_namesakes(self) -> list[str]:
        """Return the living members with the name of this one, each once: each takes partitions from the other."""
        known = {self.name, *self._drained, *self._told}
        found = [one for one in self._members.alive() if one.rpartition(".")[0] == self._stem and one not in known]
        self._told.update(found)
        return found

    def is_leaving(self, name: str) -> bool:
        """Return True if a member is leaving, or gone: it claims nothing."""
        return name != self.name and (name in self._leaving or self.is_gone(name))

    def was_lost(self, name: str) -> bool:
        """Return True if a member that is gone neither said that it leaves, nor was closed in this process."""
        return name not in self._drained and not self._incarnations.stopped(name.rpartition(".")[2])

    def is_gone(self, name: str, work: str = "") -> bool:
        """Return True if a member has no work, or does not have this one. The empty name is always gone."""
        if name == self.name:
            return False
        if work and name in self._leaving and not self._leaving[name].has(work):
            return True
        known = self._incarnations.stopped(name.rpartition(".")[2])
        return not name or known or name in self._left or self._members.dead(name)
