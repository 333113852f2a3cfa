"""Follows all logs of a cluster: finds them, and runs one `LogFollower` for each, over one view and one history of terms.

A log is found when the view names it, or when a sealed term was its; then it is followed for ever. Who needs some slots only
follows the logs that have, or ever had, one of them (`foreign`: which terms are none of its business). A log that stands
still, or stops at what cannot be right, delays no other. What a listener raises ends `run`, as does a view that cannot be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.errors import MetadataError
from boki_common.ids import Position
from boki_common.metadata.store import MetadataStore
from boki_common.retry import event_or_timeout
from boki_ledger.ledgers import Ledgers
from boki_metalog.follow.follower import FollowerListener, LogFollower
from boki_metalog.follow.term_history import TermHistory
from boki_metalog.settings import FollowerSettings
from boki_metalog.terms.term_order import ALL_SLOTS, slot_mask
from boki_metalog.terms.term_record import TermRecord
from boki_metalog.terms.view import View
from boki_metalog.terms.view_feed import ViewFeed


class LogsListener(Protocol):
    """Gets views and logs; each log's events go to the listener that `log_found` returns."""

    def log_found(self, log: int) -> FollowerListener:
        """Once per log, before anything of it. Logs found together come in ascending order."""

    def view_changed(self, view: View) -> None:
        """A newer view; all logs that it names were found. Followers get it after this call."""


class LogFollowers:
    """See the module. `run` does everything; cancel it to stop."""

    def __init__(
        self,
        *,
        metadata: MetadataStore,
        ledgers: Ledgers,
        listener: LogsListener,
        settings: FollowerSettings = FollowerSettings(),  # noqa: B008 - frozen
        starts: Mapping[int, Position] | None = None,
        slots: int = ALL_SLOTS,
        token: ClusterToken = NO_TOKEN,
    ) -> None:
        """Followers of the logs that have some slots.

        Args:
            starts: log → where it is followed from; others are from their beginnings.
            slots: those that are needed, as the bits of one number.
            token: sent to the sequencers.
        """
        self._token = token
        self._slots = slots
        self._foreign: dict[int, None] = {}
        """Terms that a view named, and that have no needed slot."""
        self._learned_below = 0
        """All records of terms below this were looked for."""
        self._starts = dict(starts or {})
        self._metadata = metadata
        self._ledgers = ledgers
        self._listener = listener
        self._settings = settings
        self._history = TermHistory(metadata, slots=slots, log_found=self._changed)
        self._wake = asyncio.Event()
        self._feed = ViewFeed(metadata, self._changed, settings.backoff())
        self._followers: dict[int, LogFollower] = {}
        self._running: dict[asyncio.Task[None], None] = {}
        self._fault: Exception | None = None

    async def run(self) -> None:
        """Follows until it is cancelled. Raises what a follower, the view or the listener raises."""
        self._feed.start()
        try:
            pause_s = None
            while True:
                self._raise_faults()
                await event_or_timeout(self._wake, pause_s)
                pause_s = await self._learn()
        finally:
            await self._feed.close()
            for task in self._running:
                task.cancel()
            if self._running:
                await asyncio.wait(list(self._running))

    def _changed(self) -> None:
        """A new view, or its end; or something was found among the sealed terms, which the view names no more."""
        view = self._feed.view
        if self._feed.error is None and view is not None and self._fault is None:
            try:
                for log in sorted({*view.logs, *self._history.logs} - self._followers.keys()):
                    if self._needs(log, view):
                        self._find(log)
                self._listener.view_changed(view)
            except Exception as error:  # noqa: BLE001 - raised by `run`
                self._fault = error
        for follower in self._followers.values():
            follower.view_changed()
        self._wake.set()

    def record(self, term: int) -> TermRecord | None:
        """The record of a sealed term, if it was read."""
        return self._history.record(term)

    def foreign(self, term: int) -> bool:
        """Whether the term is known to have no needed slot: nobody here waits for what it ordered."""
        return term in self._foreign or self._history.foreign(term)

    def _needs(self, log: int, view: View) -> bool:
        if self._slots == ALL_SLOTS or slot_mask(view.slots_of(log)) & self._slots:
            return True
        installed = view.installed(log)
        if installed is not None:
            self._foreign[installed.term] = None
        return self._history.had(log)

    async def _learn(self) -> float | None:
        """Reads of terms that came and went while their logs were not followed; returns when to try again, if it must."""
        view = self._feed.view
        if self._slots == ALL_SLOTS or view is None or view.next_term <= self._learned_below:
            return None
        before = self._history.numbers
        try:
            await self._history.refresh()
        except MetadataError as error:
            if not error.retryable:
                raise
            return self._settings.retry_limit_s
        self._learned_below = view.next_term
        if self._history.numbers != before and self._feed.error is None:
            self._listener.view_changed(view)
        return None

    def _find(self, log: int) -> None:
        follower = self._followers[log] = LogFollower(
            metadata=self._metadata,
            ledgers=self._ledgers,
            listener=self._listener.log_found(log),
            log=log,
            start=self._starts.get(log),
            settings=self._settings,
            feed=self._feed,
            history=self._history,
            token=self._token,
        )
        task = asyncio.get_running_loop().create_task(follower.run(), name=f"follows log {log}")
        self._running[task] = None
        task.add_done_callback(lambda _: self._wake.set())

    def _raise_faults(self) -> None:
        if self._fault is not None:
            raise self._fault
        if self._feed.error is not None:
            raise self._feed.error
        for task in self._running:
            if task.done():
                task.result()
