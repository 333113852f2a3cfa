"""Whose the shards of a term are: which connection speaks for which, and how long an engine without one keeps its shards.

    named, attached   a connection is an engine's: its HELLO says so, or it opened a shard for it
    own               the shards that a connection opened, and those of the engines that its HELLO named; no others
    grace             an engine whose newest connection ended keeps its shards for so long; then it is reported as lost

Decides, and keeps one timer for each engine that is away. It knows neither reports nor the metalog.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Final

from boki_common.errors import NotPermitted
from boki_common.net.messages import MessagePeer


class ShardOwners:
    """See the module. Invariant: an engine is in `engines`, or in its grace, or has no shard of this term that is open."""

    def __init__(self, grace_s: float, lost: Callable[[str], None]) -> None:
        """`lost`: an engine did not come back within its grace."""
        self.engines: Final[dict[str, MessagePeer]] = {}
        """Engines with shards → the newest connection they came on."""
        self.graces: Final[dict[str, asyncio.TimerHandle]] = {}
        self._owners: dict[int, str] = {}
        """Shard → the engine it was opened for, of all that the term has given."""
        self._own: dict[MessagePeer, dict[int, None]] = {}
        """Connection → shards that it may speak for."""
        self._grace_s = grace_s
        self._lost = lost
        self._loop = asyncio.get_running_loop()

    def named(self, peer: MessagePeer, incarnations: Sequence[str], known: Collection[str]) -> None:
        """A connection is of these engines, of which those `known` have open shards."""
        for incarnation in incarnations:
            if incarnation in known:
                self._attach(peer, incarnation)
        if incarnations:
            names = dict.fromkeys(incarnations)
            own = self._own.setdefault(peer, {})
            own.update((shard, None) for shard, owner in self._owners.items() if owner in names)

    def opened(self, peer: MessagePeer, incarnation: str, shard: int) -> None:
        """The connection opened a shard for an engine."""
        self._attach(peer, incarnation)
        self._owners[shard] = incarnation
        self._own.setdefault(peer, {})[shard] = None

    def peer_lost(self, peer: MessagePeer, *, over: bool) -> None:
        """The connection ended: its engines have the grace to come back, unless the term is over."""
        self._own.pop(peer, None)
        for incarnation in [one for one, owner in self.engines.items() if owner is peer]:
            del self.engines[incarnation]
            if not over:
                self.graces[incarnation] = self._loop.call_later(self._grace_s, self._grace_over, incarnation)

    def end(self) -> None:
        """The term is over: nobody is lost any more."""
        for handle in self.graces.values():
            handle.cancel()

    def check_speaks_for(self, peer: MessagePeer, incarnation: str) -> None:
        """An engine that is here already opens more shards on its own connection, or on one that names it. Raises NotPermitted."""
        if incarnation not in self.engines and incarnation not in self.graces:
            return
        if self.engines.get(incarnation) is not peer and not any(
            self._owners[shard] == incarnation for shard in self._own.get(peer, ())
        ):
            raise NotPermitted(
                f"expected an OPEN for an engine that this connection's HELLO named, found one for {incarnation}, which has "
                "shards in the term by another connection: name it in HELLO",
                found=incarnation,
            )

    def own(self, peer: MessagePeer) -> Collection[int]:
        """The shards that a connection may speak for."""
        return self._own.get(peer, {})

    def check_own(self, peer: MessagePeer, shard: int) -> None:
        """What nobody has opened is for others to refuse. Raises NotPermitted."""
        if shard not in self._own.get(peer, ()) and shard in self._owners:
            raise NotPermitted(
                f"expected a shard of an engine that this connection named or opened it for, found shard {shard} of "
                f"{self._owners[shard]}: nothing was done",
                shard=shard,
            )

    def _attach(self, peer: MessagePeer, incarnation: str) -> None:
        self.engines[incarnation] = peer
        grace = self.graces.pop(incarnation, None)
        if grace is not None:
            grace.cancel()

    def _grace_over(self, incarnation: str) -> None:
        del self.graces[incarnation]
        self._lost(incarnation)
