"""For how long bookies are away, as one process saw it. Pure.

A bookie is away while it is not registered. One without a cookie is retired: it is away for good, since its id is never used
again. What was seen before the own session was lost says nothing, because registrations of others may have ended with theirs.
"""

from __future__ import annotations

from collections.abc import Collection

from boki_common.ids import BookieId
from boki_ledger.repair.plan import FOR_GOOD


class Away:
    """See the module."""

    def __init__(self) -> None:
        self._since: dict[BookieId, float] = {}

    def seen(
        self,
        named: Collection[BookieId],
        registered: Collection[BookieId],
        cookies: Collection[BookieId],
        *,
        now_s: float,
    ) -> dict[BookieId, float]:
        """Takes one look at the cluster; returns for how many seconds each is away, sorted.

        Args:
            named: bookies that ledgers name.
            registered: those that are there, read-only ones too.
            cookies: those that were formatted and not retired.
            now_s: any clock that does not go back.
        """
        known = {*named, *cookies}
        self._since = {bookie: self._since.get(bookie, now_s) for bookie in sorted(known) if bookie not in registered}
        return {bookie: now_s - since_s if bookie in cookies else FOR_GOOD for bookie, since_s in self._since.items()}

    def answered(self, bookie: BookieId) -> None:
        """A bookie is there although it is not registered."""
        self._since.pop(bookie, None)

    def forget(self) -> None:
        """The own session was lost: all counting begins again."""
        self._since.clear()
