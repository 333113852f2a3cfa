"""One physical log, as an engine takes part in it: its appender and its indexer, driven by the follower of the log.

The order of steps on a metalog entry matters:
    1. the indexer takes it, and asks for the headers that other engines wrote;
    2. the appender is called with how far its shard is cut, then that it was closed: what is beyond goes to the next shard;
    3. what can be applied is: verdicts, rows, answers, readers; then the appender goes on.

A metalog entry that cannot follow those before it is refused, with all behind it, before anything is made of it: the follower says
that the log stops there (`stopped`).

When a term is over, the appender's rest goes by way of the router to whoever has its books next; the indexer may still be
behind, and nothing waits for it but terms that come after (`frontier`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from boki_common.errors import BokiError, CorruptData
from boki_common.ids import Position
from boki_logbook.append.appender import Appender
from boki_logbook.append.router import AppendRouter
from boki_logbook.apply.indexer import Indexer
from boki_logbook.apply.sealer import Sealer
from boki_logbook.ports import ShardLink
from boki_logbook.state.frontier import Frontier
from boki_metalog.entries.metalog_entry import Close, Lost, MetalogEntry
from boki_metalog.follow.follower import EntryRefused
from boki_metalog.terms.term_info import TermInfo
from boki_metalog.terms.term_order import slot_mask
from boki_metalog.terms.term_record import TermRecord


class Stop(NamedTuple):
    """The metalog position behind which nothing of a log can be applied."""

    at: Position
    error: str


class LogOwner(Protocol):
    """What the logs of an engine report to it."""

    def link_changed(self) -> None:
        """A sequencer can be spoken to."""

    def lost(self, command: Lost) -> None:
        """A LOST command was ordered; the term may be one of another log."""


class EngineLog:
    """See the module. Implements `FollowerListener`."""

    def __init__(
        self,
        *,
        owner: LogOwner,
        frontier: Frontier,
        router: AppendRouter,
        sealer: Sealer,
        appender: Appender,
        indexer: Indexer,
    ) -> None:
        self.log: Final = indexer.log
        self.appender: Final = appender
        self.indexer: Final = indexer
        self.info: TermInfo | None = None
        """Of the newest term."""
        self.link: ShardLink | None = None
        """The connection to the sequencer of the current term, while there is one."""
        self.stop: Stop | None = None
        """Where the log cannot be followed beyond, and why."""
        self._loop = asyncio.get_running_loop()
        self._away_since_s = self._loop.time()
        self._sealed = self._over = self._idle = False
        """Of the newest term: whether it was over when it was met, and whether it ended since; whether the log has none."""
        self._owner = owner
        self._frontier = frontier
        self._router = router
        self._sealer = sealer
        appender.no_shard = self._no_shard
        router.add_log(self.log, appender)

    @property
    def ready(self) -> bool:
        """Whether what was ordered before this engine started is applied."""
        return self.indexer.ready

    # -- FollowerListener

    async def term_started(self, info: TermInfo) -> None:
        self.info = info
        self._sealed, self._over, self._idle = info.sealed, False, False
        self.indexer.term_started(info)
        if not info.sealed:
            self.appender.term_started(info.term, slot_mask(info.slots))
            self._router.term_started(self.log, info.term, info.slots)

    def entries_ordered(self, term: int, first_entry: int, entries: Sequence[MetalogEntry]) -> None:
        indexer, appender = self.indexer, self.appender
        refused: EntryRefused | None = None
        for entry, metalog_entry in enumerate(entries, first_entry):
            try:
                indexer.ordered(term, entry, metalog_entry)
            except CorruptData as error:
                refused = EntryRefused(str(error), entry=entry)
                break
            for number, _, entries_end in metalog_entry.shards:
                appender.cut(term, number, entries_end)
            for command in metalog_entry.commands:
                if isinstance(command, Close):
                    appender.closed(term, command.shard)
                    self._seal(term, command.shard)
                elif isinstance(command, Lost):
                    self._owner.lost(command)
        indexer.apply()
        appender.cut_applied()
        if refused is not None:
            raise refused

    async def caught_up(self) -> None:
        await self.indexer.room()

    async def term_ended(self, record: TermRecord) -> None:
        self._over = not self._sealed
        self.appender.term_ended(record.term)
        self._router.term_ended(self.log, record.term)
        for number in self.indexer.close_shards():
            self._seal(record.term, number)
        self.indexer.term_ended(record.term)
        await self.indexer.room()

    def sequencer_up(self, link: ShardLink) -> None:
        self.link = link
        self.indexer.sequencer_up()
        self.appender.link_up(link)
        self._owner.link_changed()

    def sequencer_down(self) -> None:
        self.link = None
        self._away_since_s = self._loop.time()
        self.appender.link_down()

    def idle(self) -> None:
        self._idle = True
        self.indexer.idle()

    def complete(self) -> None:
        self.indexer.complete()

    def stopped(self, position: Position, error: BokiError | None) -> None:
        self.stop = None if error is None else Stop(position, str(error))

    def _no_shard(self, link: ShardLink) -> None:
        """The disks are full: what was ordered before this engine started is known by a barrier, not by its first OPEN."""
        if not self.indexer.ready:
            link.ask_barrier(self._barrier_answered)

    def _barrier_answered(self, position: Position | BokiError) -> None:
        if not isinstance(position, BokiError):
            self.indexer.ready_at(position)

    def _seal(self, term: int, number: int) -> None:
        self._sealer.seal(self.indexer.shards[number], self.appender.writer_of(term, number))

    # -- status

    def status(self) -> dict[str, Any]:
        """What there is to say about this log; values are plain."""
        received = self._frontier.received.get(self.log, (0, 0))
        applied = self._frontier.positions.get(self.log, (0, 0))
        appender, stop = self.appender, self.stop
        return {
            "log": self.log,
            "ready": self.indexer.ready,
            "term": received[0],
            "position": {"received_entry": received[1], "indexed_term": applied[0], "indexed_entry": applied[1]},
            "lag_entries": self.indexer.pending,
            "seqnum": self._frontier.covered.get(self.log, 0),
            "sequencer": self.link is not None,
            "sequencer_away_s": None if self.link is not None else self._loop.time() - self._away_since_s,
            "idle": self._idle,
            "term_over": self._over,
            "shard": appender.status(),
            "queued": {"batches": appender.queued, "oldest_s": appender.oldest_s},
            "waits_for_terms": self.indexer.waits_for_terms,
            "unreadable": self.indexer.unreadable,
            "foreign": self.indexer.foreign,
            "stopped": None if stop is None else {"term": stop.at.term, "entry": stop.at.entry, "error": stop.error},
        }
