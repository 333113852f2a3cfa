"""Snapshot and what follows it give the state of a full rebuild: two logs, several terms, moves, trims, verdicts, writers."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.scripted import Scripted
from tests.engine.state.test_snapshot_format import decoded

from boki_common import ids
from boki_common.records.record_batch import RUN_NAMED
from boki_logbook.core import EngineCore
from boki_logbook.state.snapshot_format import Snapshot, encode, raw_bytes
from boki_logbook.testing.cluster import (
    RecordingSource,
    RecordSpec,
    RunSpec,
    append,
    same_state,
)
from boki_metalog.entries.metalog_entry import Expire, Trim

BOOKS = (1, 2, 3, 4)
TAGS = (5, 6)
WRITERS = {bytes(15) + b"a": 0, bytes(15) + b"b": RUN_NAMED}
FOR_EVER = 2**62


class Append(NamedTuple):
    """Records of a writer in a book; `expect`: of the first one, that this tag has none."""

    book: int
    writer: bytes
    tags: list[tuple[int, ...]]
    again: bool
    expect: int | None


class TrimBook(NamedTuple):
    book: int
    tag: int
    forget: bool


class Forget(NamedTuple):
    """EXPIRE of a writer."""

    book: int
    writer: bytes


class Move(NamedTuple):
    """Slots from `first` on to a log; or, without slots, its next term."""

    first: int | None
    log: int


class Take(NamedTuple):
    """A snapshot."""


TAKE = Take()
STEPS = st.lists(
    st.one_of(
        st.builds(
            Append,
            st.sampled_from(BOOKS),
            st.sampled_from(sorted(WRITERS)),
            st.lists(st.lists(st.sampled_from(TAGS), max_size=2).map(tuple), min_size=1, max_size=3),
            st.booleans(),
            st.one_of(st.none(), st.sampled_from(TAGS)),
        ),
        st.builds(TrimBook, st.sampled_from(BOOKS), st.sampled_from((0, *TAGS)), st.booleans()),
        st.builds(Forget, st.sampled_from(BOOKS), st.sampled_from(sorted(WRITERS))),
        st.builds(Move, st.one_of(st.none(), st.sampled_from((0, 300, 700))), st.sampled_from((0, 1))),
        st.just(TAKE),
    ),
    max_size=24,
)


class World(Scripted):
    """Two logs and the engine that writes them."""

    def __init__(self) -> None:
        super().__init__(2)
        self.numbers: dict[tuple[int, bytes], int] = {}
        self.source = RecordingSource()

    async def settled(self, core: EngineCore) -> None:
        await self.settle()
        await self.until(lambda: not core.pending and all(log.appender.shard for log in core.logs.values()))

    async def step(self, core: EngineCore, step: Any) -> Snapshot | None:
        if isinstance(step, Append):
            last = self.numbers.get((step.book, step.writer), 0)
            first = max(last + 1 - step.again, 1)
            expect = () if step.expect is None else ((step.expect, 0),)
            records = [RecordSpec(tags, b"x", expect if not at else ()) for at, tags in enumerate(step.tags)]
            self.numbers[step.book, step.writer] = max(last, first + len(records) - 1)
            append(core, self.source, RunSpec(step.book, step.writer, first, tuple(records), 1, WRITERS[step.writer]))
        elif isinstance(step, TrimBook):
            await core.order(step.book, Trim(step.book, ((step.tag, FOR_EVER),), step.forget))
        elif isinstance(step, Forget):
            last = core.state.verdicts.last(step.book, step.writer)
            await core.order(step.book, Expire(step.book, step.writer, last))
            if last:
                self.numbers.pop((step.book, step.writer), None)
        elif isinstance(step, Move):
            moved = () if step.first is None else range(step.first, step.first + 300)
            await self.logs.move(moved, to=step.log)
        await self.settled(core)
        return await core.snapshots.snapshot() if isinstance(step, Take) else None

    async def replay(self, core: EngineCore) -> None:
        """Tells an engine the past, log after log, from where each starts; as followers do."""
        starts = core.snapshots.starts()
        for number in self.logs.logs:
            core.log_found(number)
        core.view_changed(self.logs.view)
        for number, log in self.logs.logs.items():
            part, start = core.logs[number], starts.get(number, ids.Position(0, 0))
            for term in sorted(log.infos):
                if term < start.term:
                    continue
                record = self.logs.records.get(term)
                await part.term_started(log.infos[term]._replace(sealed=record is not None))
                first = start.entry if term == start.term else 0
                part.entries_ordered(term, first, log.history[term][first:])
                if record is not None:
                    await part.term_ended(record)
        await self.until(lambda: not core.pending)


async def play(steps: list[Any]) -> None:
    world = World()
    try:
        await world.logs.begin()
        writer = world.core()
        await world.logs.join(writer)
        await world.settled(writer)
        taken = [await writer.snapshots.snapshot()]
        for step in steps:
            snapshot = await world.step(writer, step)
            if snapshot is not None:
                taken.append(snapshot)
        rebuilt = world.core()
        await world.replay(rebuilt)
        assert same_state(writer, rebuilt)
        for snapshot in taken[-2:]:
            restored = world.core()
            restored.restore(decoded(encode(snapshot), raw_bytes(snapshot)))
            await world.replay(restored)
            assert same_state(rebuilt, restored)
            assert rebuilt.frontier.ended == restored.frontier.ended
            for term, places in rebuilt.state.places.terms.items():
                found = restored.state.places.terms[term]
                assert [one.counts for one in places.shards.values()] == [one.counts for one in found.shards.values()]
                assert places.last_time_ms == found.last_time_ms
                assert rebuilt.state.live(term) == restored.state.live(term)
            for book in BOOKS:
                assert rebuilt.frontier.log_of(book) == restored.frontier.log_of(book)
                assert rebuilt.state.verdicts.floor(book) == restored.state.verdicts.floor(book)
                for tag in (0, *TAGS):
                    assert rebuilt.state.index.mark(book, tag) == restored.state.index.mark(book, tag)
                    assert rebuilt.state.index.newest(book, tag) == restored.state.index.newest(book, tag)
    finally:
        await world.close()


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_a_snapshot_and_its_tail_are_the_whole_log(steps: list[Any]) -> None:
    asyncio.run(play(steps))
