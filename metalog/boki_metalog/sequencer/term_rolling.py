"""When a running term is full (`roll_rules`): asked after each entry that may have filled it, and by a timer where nothing comes.

ordered     an entry was acknowledged
disks_are_full  bookies have no room but their reserves, and the term has a TRIM
full        why the term ends now; None: it goes on, or cannot be rolled yet
aged        called back when the timer finds it full; what is in flight then does it by its acknowledgement
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from boki_metalog.entries.progress import CutBuilder
from boki_metalog.errors import TermFull
from boki_metalog.sequencer.roll_rules import TermExtent, roll_reason
from boki_metalog.settings import SequencerSettings


class TermRolling:
    """See the module. Invariant: while a record was ordered and the term goes on, a timer is set."""

    def __init__(
        self,
        term: int,
        builder: CutBuilder,
        settings: SequencerSettings,
        *,
        may_roll: Callable[[], bool],
        aged: Callable[[], None],
    ) -> None:
        """`may_roll`: whether the next term could begin. `aged`: checks whether it is full; called again after a while."""
        self._term = term
        self._builder = builder
        self._settings = settings
        self._may_roll = may_roll
        self._aged = aged
        self._loop = asyncio.get_running_loop()
        self._first_s: float | None = None
        """When the first record was acknowledged."""
        self._timer: asyncio.TimerHandle | None = None
        self.trimmed = False
        """Whether the term has a TRIM."""
        self._frees_space = False
        """Whether its end lets space be reclaimed that is wanted now."""
        self._perhaps = False
        """Whether anything happened that may have filled the term."""

    def ordered(self, entries: int, *, records: bool, commands: bool) -> None:
        """The term has so many entries; whether it has records, and the newest entry commands."""
        if records and self._first_s is None:
            self._first_s = self._loop.time()
            self._timer = self._loop.call_later(self._settings.term_age_s, self._look)
        if commands or entries >= self._settings.term_entries:
            self._perhaps = True

    def disks_are_full(self) -> None:
        """The newest entry of a term that was trimmed is in the reserves of full disks."""
        if self._frees_space:
            return
        self._frees_space = self._perhaps = True
        if self._timer is not None:  # where it cannot be rolled yet
            self._timer.cancel()
            self._timer = self._loop.call_later(self._settings.standby_check_s, self._look)

    def perhaps_full(self, entries: int) -> TermFull | None:
        """`full`, if anything happened that may have filled it."""
        return self.full(entries) if self._perhaps else None

    def full(self, entries: int) -> TermFull | None:
        """Why the term, of so many entries, ends now."""
        builder = self._builder
        extent = TermExtent(self._first_s, entries, builder.shards_given, builder.shards_left, self._frees_space)
        reason = roll_reason(extent, self._settings, self._loop.time())
        self._perhaps = reason is not None
        if reason is None or not self._may_roll():
            return None
        return TermFull(f"term {self._term} ends: {reason}", term=self._term)

    def end(self) -> None:
        """The term is over."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = self._loop.call_later(self._settings.standby_check_s, self._look)
        self._aged()
