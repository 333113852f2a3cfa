"""The token of a simulated cluster: whether it has one, what the file of each machine holds, and when tokens are exchanged.

One in three clusters of the harsh profile has a token; in half of these it is exchanged while everything runs, as
docs/operating.md says: every file gets the new one beside the old one, then in front of it, then alone. Each machine's file changes
at a time of its own; only when all have, the next change begins. All numbers are this plan's own, so nothing else of a seed changes.

What a file holds is shared by all processes of its machine, as those of one file are.
"""

from __future__ import annotations

import random  # noqa: TID251 - the type; the generators come from the seed
from collections.abc import Sequence
from typing import Final, NamedTuple

import boki
from boki._credential import Credential
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_sim.world.loop import SimLoop
from boki_sim.world.process import CURRENT
from boki_sim.world.trace import Trace

SHARE: Final = 1 / 3
EXCHANGED: Final = 1 / 2
SPREAD_S: Final = 1.5
"""Within this all files have changed."""


class TokenPlan(NamedTuple):
    """Of one cluster. `tokens`: the first one, and perhaps its successor. `changes`: when each of the three changes of an
    exchange begins, in seconds after the work began."""

    tokens: tuple[str, ...] = ()
    changes: tuple[float, ...] = ()


NO_PLAN: Final = TokenPlan()


def draw_tokens(numbers: random.Random, profile: str, *, seconds: float) -> TokenPlan:
    """A cluster's plan; most have none."""
    if profile != "harsh" or numbers.random() >= SHARE:
        return NO_PLAN
    tokens = tuple(numbers.randbytes(16).hex() for _ in range(2))
    if numbers.random() >= EXCHANGED:
        return TokenPlan(tokens[:1])
    first = numbers.uniform(0.0, 0.4) * seconds
    gaps = [numbers.uniform(1.2, 2.0) * SPREAD_S for _ in range(2)]
    return TokenPlan(tokens, (first, first + gaps[0], first + sum(gaps)))


class TokenFiles:
    """What each machine's file holds."""

    def __init__(self, loop: SimLoop, plan: TokenPlan, numbers: random.Random, trace: Trace) -> None:
        self.plan: Final = plan
        self._loop = loop
        self._numbers = numbers
        self._trace = trace
        self._files: dict[str, ClusterToken] = {}
        self._newest: Sequence[str] = plan.tokens[:1]

    @property
    def asked(self) -> bool:
        """Whether the cluster has a token."""
        return bool(self.plan.tokens)

    def of(self, host: str) -> ClusterToken:
        """What the processes of a machine hold. A machine that is new has what is newest."""
        if not self.plan.tokens:
            return NO_TOKEN
        found = self._files.get(host)
        if found is None:
            found = self._files[host] = ClusterToken(self._newest)
        return found

    def begin(self) -> None:
        """From now on tokens are exchanged as planned."""
        for at, held in zip(self.plan.changes, exchange(self.plan.tokens), strict=False):
            self._loop.call_later(at, self._change, held, context=self._loop.outside.context)

    def _change(self, held: Sequence[str]) -> None:
        for host in list(self._files):
            after_s = self._numbers.random() * SPREAD_S
            self._loop.call_later(after_s, self._renew, host, held, context=self._loop.outside.context)
        self._loop.call_later(SPREAD_S, self._all_have, held, context=self._loop.outside.context)

    def _renew(self, host: str, held: Sequence[str]) -> None:
        self._files[host].renew(ClusterToken(held))
        self._trace.add("token", "renewed", host, len(held))

    def _all_have(self, held: Sequence[str]) -> None:
        """Machines that came meanwhile have what was there before: they get it now."""
        self._newest = held
        for host in self._files:
            self._renew(host, held)


def exchange(tokens: Sequence[str]) -> list[Sequence[str]]:
    """What files hold, one after the other, while the first token gives way to the second."""
    if len(tokens) < 2:
        return []
    old, new = tokens
    return [(old, new), (new, old), (new,)]


def client_of(url: str, files: TokenFiles, *, timeout: float | None = None) -> boki.Client:
    """A client that shows what the file of its machine holds when it connects."""
    client = boki.connect(url, timeout=timeout)
    if files.asked:
        process = CURRENT.get(None)
        client._credential = Credential(files.of("outside" if process is None else process.host))
    return client
