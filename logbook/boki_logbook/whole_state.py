"""The whole state of an engine at one moment: taken as a snapshot, and begun with (DESIGN §7)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final

from boki_common.errors import CorruptData
from boki_common.ids import Position
from boki_logbook.apply.engine_log import EngineLog
from boki_logbook.apply.engine_parts import EngineParts
from boki_logbook.index.places import ShardPlace
from boki_logbook.state.snapshot_format import LogPoint, Snapshot
from boki_logbook.state.snapshot_rules import as_applied
from boki_logbook.state.state import DecisionState, checked_state

PAUSE_S: Final = 1.0
"""For a snapshot all logs stop behind a metalog entry, for so long at most: then another time."""


class WholeState:
    """See the module. `waits_for`: why the engine cannot begin yet, when the index snapshot that it would begin with is of no
    use. `points`: log → where the snapshot was that the engine began with."""

    def __init__(self, parts: EngineParts, slots: int, logs: Mapping[int, EngineLog]) -> None:
        self.waits_for = ""
        self.points: Mapping[int, LogPoint] = {}
        self._parts = parts
        self._slots = slots
        self._logs = logs
        self._checked: tuple[Snapshot, DecisionState] | None = None
        """The state of a snapshot that was found to be usable, until it is restored."""
        self._stopped: asyncio.Future[None] | None = None
        """Resolved at an advance, while a snapshot waits for the logs to stop."""

    def check_usable(self, snapshot: Snapshot) -> None:
        """Whether this engine can begin with it. Raises CorruptData: nothing can be made of it, or it has something that was given
        up as never indexed."""
        state = checked_state(snapshot.state, slots=self._slots)
        if not all(state.agrees(lost) for lost in self._parts.given_up.commands):
            raise CorruptData("the index snapshot has entries that a LOST command gave up as never indexed")
        self._checked = snapshot, state

    def restore(self, snapshot: Snapshot) -> DecisionState:
        """Goes on from a snapshot; before any log is found."""
        assert not self._logs, "a snapshot is restored before anything is applied"
        checked, self._checked = self._checked, None
        state = (
            checked[1]
            if checked is not None and checked[0] is snapshot
            else checked_state(snapshot.state, slots=self._slots)
        )
        self._parts.state = state
        self.points = {point.log: point for point in snapshot.logs}
        self._parts.frontier.restore(
            {log: Position(point.term, point.entry) for log, point in self.points.items()},
            {log: point.covered for log, point in self.points.items() if point.covered},
            dict(snapshot.ended),
            [(term, places.log, places.slots) for term, places in state.places.terms.items()],
        )
        return state

    def closed_shards(self) -> Iterator[ShardPlace]:
        """Of terms with live records: their ledgers may have to be closed."""
        state = self._parts.state
        for term in sorted(state.places.terms):
            for shard in state.places.terms[term].shards.values():
                if shard.closed and state.live(term):
                    yield shard

    def starts(self) -> dict[int, Position]:
        """Where each log goes on; a log that is not named begins at its beginning."""
        return {
            log: Position(point.term + 1, 0) if point.ended else Position(point.term, point.entry)
            for log, point in self.points.items()
        }

    async def snapshot(self) -> Snapshot:
        """The whole state: every log stops behind a metalog entry, until all have. Raises TimeoutError."""
        try:
            async with asyncio.timeout(PAUSE_S):
                while True:
                    for log in self._logs.values():
                        log.indexer.pause()
                    if all(log.indexer.between_entries for log in self._logs.values()):
                        return self._snapshot_now()
                    self._stopped = asyncio.get_running_loop().create_future()
                    await self._stopped
        finally:
            self._stopped = None
            for log in self._logs.values():
                log.indexer.unpause()

    def advanced(self) -> None:
        """A log applied something: it may have stopped."""
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(None)

    def _snapshot_now(self) -> Snapshot:
        points = [self._logs[log].indexer.point() for log in sorted(self._logs)]
        logs = tuple(point for point in points if point is not None)
        state = as_applied(self._parts.state.snapshot_state(), logs)
        return Snapshot(state, logs, tuple(sorted(self._parts.frontier.ended.items())))
