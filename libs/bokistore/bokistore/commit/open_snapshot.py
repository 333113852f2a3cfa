"""The snapshot of a transaction while it can still move. Pure.

A transaction does not request a snapshot before it reads: the place of its first read becomes the snapshot. While every object that it
reads is cached (`view_cache`), no request is sent at all, and it reads at the newest place where all of these views hold.

- Everything that it has read holds at one place. A later read moves the place only if all earlier reads still hold there
  (`common_place`). If one does not, the place stays and the transaction is *stale*: it reads on at that place and then runs again.
- A record expects that nothing moved since the place, so a transaction that writes is right however old the place was. A transaction
  that writes nothing expects nothing; its outcome counts only if the log was read (`proven`).
- Snapshot isolation does not expect objects that were only read, so there the place is never below what the session had seen.
- An object that is written without being read, and is cached, is expected not to have moved since (`take_unseen`); then its new state can
  be cached as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from bokilib.records.isolation import Isolation
from bokistore.model.fold import View, unchanged
from bokistore.read.view_cache import KnownView, common_place


class OpenSnapshot:
    """The place where a transaction reads, and the views that it read there; see the module.

    Attributes:
        place: the place where all views that were read hold; 0: nothing was read.
        fixed: whether the place can no longer move.
        stale: whether an object that was read is known to have changed since.
        from_log: whether the log answered with the place.
        bases: the views that were read.
        unseen: cached views of objects that are written without being read.
    """

    def __init__(self, isolation: Isolation, seen: int, *, trusting: bool, least: int = 0) -> None:
        """Open a snapshot at no place yet.

        Args:
            isolation: the level of the transaction.
            seen: the session's position when the transaction begins.
            trusting: whether cached views are used without a request.
            least: the lowest place at which cached views count.
        """
        self.place = 0
        self.fixed = False
        self.stale = False
        self.from_log = False
        self.bases: Final[dict[str, View]] = {}
        self.unseen: Final[dict[str, View]] = {}
        self._isolation: Final = isolation
        self._least: Final = least if isolation == "serializable" else max(least, seen)
        self._trusting: Final = trusting
        self._known_least: Final = least

    def fix(self, place: int) -> None:
        """Fix the place where the transaction reads."""
        assert not self.fixed and place >= self.place, "a place moves on until it is fixed"
        self.place, self.fixed = place, True

    def take_known(self, names: Iterable[str], known: Mapping[str, KnownView]) -> bool:
        """Read cached views, if they hold at one place with all earlier reads; return whether they do.

        Args:
            names: the objects to read.
            known: cached views of these and of all earlier reads, as far as there are any.
        """
        wanted = [*self.bases, *names]
        if self.fixed or not self._trusting or not wanted:
            return False
        several = [known[name] for name in wanted if name in known]
        if len(several) < len(wanted) or not all(one.steady for one in several) or self._changed(several):
            return False
        place = common_place(several, max(self._least, self.place))
        if place:
            self.place = place
            self.bases.update({one.view.name: one.view for one in several})
        return bool(place)

    def take_read(self, place: int, views: Iterable[View]) -> bool:
        """Read views that the log answered, at a place that is fixed by them; return whether all earlier reads still hold there.

        If one does not, the place stays, and the new objects have to be read there.
        """
        found = {view.name: view for view in views}
        if any(name not in found or not unchanged(base, found[name]) for name, base in self.bases.items()):
            self.stale = True
            self.fix(self.place)
            return False
        self.fix(place)
        self.from_log = True
        self.bases.update(found)
        return True

    def take_unseen(self, names: Iterable[str], known: Mapping[str, KnownView]) -> dict[str, int]:
        """Return up to where cached objects that are written unread are expected not to have moved.

        At snapshot isolation that is at most the place: transactions that write one object must not overlap.
        """
        found: dict[str, int] = {}
        for name in names:
            one = known.get(name)
            if (
                not self._trusting
                or one is None
                or not one.steady
                or name in self.bases
                or one.upto < self._known_least
            ):
                continue
            upto = one.upto if self._isolation == "serializable" else min(one.upto, self.place)
            if one.view.seen <= upto:
                found[name], self.unseen[name] = upto, one.view
        return found

    @property
    def guessed(self) -> bool:
        """True if an expectation rests on cached views instead of the log's answer."""
        return self._trusting and (not self.from_log or bool(self.unseen))

    def proven(self) -> bool:
        """Return whether the reads count without an append that expects them."""
        return not self.stale and (self.from_log or not self.bases)

    def _changed(self, several: Iterable[KnownView]) -> bool:
        return any(
            one.view.name in self.bases and not unchanged(self.bases[one.view.name], one.view) for one in several
        )
