"""Where a transaction reads, as long as that is open. Pure.

A transaction need not request its snapshot before it reads: the place as of which it first reads is one. And while everything that it
reads is known here (`view_cache`), no request is sent at all: it reads at the newest place as of which all of it holds.

- All that it has read is as of one place, at any time: what is read next moves the place on only where what was read before still
  holds there (`together`). Where that did not, the place stays, and the transaction is *stale*: it reads on at that place, and is
  run again.
- What it expects in the log is that nothing moved since. So who writes is right, however old the place was; but who returned or
  raised something and wrote nothing expects nothing: that counts only when the log was read (`proven`).
- At snapshot isolation what is only read is not expected: there the place is never below what the session had seen.
- What is written unseen and is known here is expected not to have moved since it is known (`take_unseen`), so that what it becomes is
  known too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from bokilib.records.isolation import Isolation
from bokistore.model.fold import View, unchanged
from bokistore.read.view_cache import Known, common_place


class OpenSnapshot:
    """See the module.

    Attributes:
        place: as of which all that was read is; 0: nothing was. fixed: whether it does not move any more.
        bases: what was read; unseen: what is written and was not, as it is known. stale: something of what was read is known to have
            changed since. from_log: the place is what the log answered.
    """

    def __init__(self, isolation: Isolation, seen: int, *, trusting: bool, least: int = 0) -> None:
        """
        Args:
            seen: what the session has seen when the transaction begins. trusting: known views are taken without a request, as of
                `least` at the lowest.
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
        """It reads at this place from now on."""
        assert not self.fixed and place >= self.place, "a place moves on until it is fixed"
        self.place, self.fixed = place, True

    def take_known(self, names: Iterable[str], known: Mapping[str, Known]) -> bool:
        """Reads what is known, if that is as of one place with what was read before; returns whether it was.

        Args:
            known: of these names, and of those that were read before, as far as there are any.
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
        """Reads what was requested together with all that was read before, as of one place, which then is fixed; returns whether it
        does: not if something had changed. Then the place stays, and what is new has to be read there."""
        found = {view.name: view for view in views}
        if any(name not in found or not unchanged(base, found[name]) for name, base in self.bases.items()):
            self.stale = True
            self.fix(self.place)
            return False
        self.fix(place)
        self.from_log = True
        self.bases.update(found)
        return True

    def take_unseen(self, names: Iterable[str], known: Mapping[str, Known]) -> dict[str, int]:
        """Of what is written and was not read, as far as it is known here and nobody else changes it: up to where to expect that
        it did not move. At snapshot isolation that is not above the place: two that write one object did not run at the same time.
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
        """Whether something of what it expects is what was known here, and not what the log answered."""
        return self._trusting and (not self.from_log or bool(self.unseen))

    def proven(self) -> bool:
        """Whether what was read counts without an append that expects it."""
        return not self.stale and (self.from_log or not self.bases)

    def _changed(self, several: Iterable[Known]) -> bool:
        return any(
            one.view.name in self.bases and not unchanged(self.bases[one.view.name], one.view) for one in several
        )
