"""A model of the sink: all executions of two attempts at one partition of a batch, and of the next batch, with messages that arrive late.

There is one book with one partition. Attempts 0 and 1 write batch 1; attempt 2 writes batch 2 once batch 1 is committed. Messages of an
attempt that died or was abandoned arrive at any later time, in order. Each step calls `sink_rules`. One rule can be left out, to show
that it is needed:

    rows_without_condition  rows are appended even after another attempt fenced theirs
    nothing_skipped         an attempt writes all its rows, whatever earlier attempts wrote
    leftovers_ignored       rows that only an earlier attempt had are tolerated
    no_end                  an attempt that wrote all its rows leaves no END

The invariant: once batch 1 is committed, its rows in the log are exactly those of an attempt that ended, each once.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from boki_spark.errors import PipelineError, SinkReplayDiffers
from boki_spark.sink import sink_rules as rules
from boki_spark.sink.sink_rules import (
    AttemptRecord,
    BeginAttempt,
    CommitRecord,
    CompareRows,
    Control,
    EndRecord,
    NewestRecord,
    RowTally,
    SinkRow,
)

IN_FLIGHT: Final = 3
STATES: Final = 400_000

RULES: Final = ("rows_without_condition", "nothing_skipped", "leftovers_ignored", "no_end")


class LoggedRecord(NamedTuple):
    """A record of the log: a control record, or a row of a batch."""

    batch: int
    what: Control | str


class RowInFlight(NamedTuple):
    """An append of a row that is not decided yet, with its conditions."""

    batch: int
    row: str
    partition: int
    query: int


class TaskState(NamedTuple):
    """The state of one attempt."""

    state: str = "new"  # new, ask, run, done, failed, dead, differs
    sent: int = 0
    fence: int = -1
    query: int = -1
    asked: BeginAttempt | None = None
    there: tuple[str, ...] = ()


class ModelState(NamedTuple):
    """The log, the attempts, and their undecided appends."""

    log: tuple[LoggedRecord, ...]
    tasks: tuple[TaskState, TaskState, TaskState]
    flying: tuple[tuple[RowInFlight, ...], ...]


class ModelResult(NamedTuple):
    """The outcome of a search."""

    states: int
    committed: int
    """States in which batch 1 is committed."""
    differs: int
    doubled: int
    """States with a row that occurs more often than in any attempt."""
    hole: ModelState | None
    """The first state that violates the invariant."""


class Search:
    """A search through all states that two sequences of rows can reach."""

    def __init__(self, first: Sequence[str], second: Sequence[str], without: str = "") -> None:
        assert not without or without in RULES
        self._rows = (tuple(first), tuple(second), ("x", "y"))
        self._without = without

    def run(self) -> ModelResult:
        start = ModelState(
            (LoggedRecord(-1, CommitRecord(-1, ())),), (TaskState(), TaskState(), TaskState()), ((), (), ())
        )
        seen, queue = {start}, deque([start])
        committed = differs = doubled = 0
        most = Counter(self._rows[0]) | Counter(self._rows[1])
        while queue:
            state = queue.popleft()
            there = Counter(one.what for one in state.log if one.batch == 1 and isinstance(one.what, str))
            doubled += bool(there - most)
            differs += any(task.state == "differs" for task in state.tasks)
            if _committed(state):
                committed += 1
                if not any(state.tasks[at].state == "done" and there == Counter(self._rows[at]) for at in (0, 1)):
                    return ModelResult(len(seen), committed, differs, doubled, state)
            for after in self._steps(state):
                if after not in seen:
                    seen.add(after)
                    queue.append(after)
            assert len(seen) < STATES
        return ModelResult(len(seen), committed, differs, doubled, None)

    def _steps(self, state: ModelState) -> Iterator[ModelState]:
        if not _committed(state) and any(state.tasks[at].state == "done" for at in (0, 1)):
            yield state._replace(log=(*state.log, LoggedRecord(1, CommitRecord(1, ()))))
        for at, task in enumerate(state.tasks):
            if at == 2 and not _committed(state):
                continue
            given_up = state.tasks[0].state in ("dead", "failed")
            if task.state in ("new", "run") and at < 2 and not (at == 1 and given_up):
                yield _with(state, at, task._replace(state="dead"))
            if task.state == "new":
                yield self._look(state, at)
            elif task.state == "ask":
                yield self._ask(state, at)
            elif task.state == "run":
                yield from self._run(state, at)
            if state.flying[at]:
                yield self._arrive(state, at)

    def _look(self, state: ModelState, at: int) -> ModelState:
        task, batch = state.tasks[at], _batch(at)
        try:
            step = rules.next_step(batch, _newest(state, CommitRecord), _newest(state, AttemptRecord, EndRecord))
        except PipelineError:
            return _with(state, at, task._replace(state="failed"))
        if isinstance(step, BeginAttempt):
            return _with(state, at, task._replace(state="ask", asked=step))
        if isinstance(step, CompareRows):
            tally = RowTally()
            for row in self._rows[at]:
                tally.take(_row(row))
            try:
                tally.check_same(step.end)
            except SinkReplayDiffers:
                return _with(state, at, task._replace(state="differs"))
            return _with(state, at, task._replace(state="done"))
        return _with(state, at, task._replace(state="failed"))  # committed: nothing to do

    def _ask(self, state: ModelState, at: int) -> ModelState:
        """Decide the append of ATTEMPT."""
        task, batch = state.tasks[at], _batch(at)
        asked = task.asked
        assert asked is not None
        query, partition = _newest(state, CommitRecord), _newest(state, AttemptRecord, EndRecord)
        if query is None or query.seqnum != asked.query or (partition and partition.seqnum) != asked.partition:
            return _with(state, at, TaskState())
        own = len(state.log)
        there = tuple(
            one.what
            for one in state.log[asked.first :]
            if asked.first and one.batch == batch and isinstance(one.what, str)
        )
        if self._without == "nothing_skipped":
            there = ()
        after = state._replace(log=(*state.log, LoggedRecord(batch, AttemptRecord(batch, 0, asked.first))))
        return _with(after, at, TaskState("run", 0, own, asked.query, None, there))

    def _run(self, state: ModelState, at: int) -> Iterator[ModelState]:
        task, batch, rows = state.tasks[at], _batch(at), self._rows[at]
        if task.sent < len(rows):
            row = rows[task.sent]
            if self._tally(task, rows[: task.sent]).take(_row(row)):
                if len(state.flying[at]) < IN_FLIGHT:
                    sent = RowInFlight(batch, row, task.fence, task.query)
                    flying = _replaced(state.flying, at, (*state.flying[at], sent))
                    yield _with(state._replace(flying=flying), at, task._replace(sent=task.sent + 1))
            else:
                yield _with(state, at, task._replace(sent=task.sent + 1))
        elif not state.flying[at]:
            yield self._finish(state, at)

    def _tally(self, task: TaskState, taken: Sequence[str]) -> RowTally:
        tally = RowTally(map(_row, task.there))
        for row in taken:
            tally.take(_row(row))
        return tally

    def _finish(self, state: ModelState, at: int) -> ModelState:
        task, batch = state.tasks[at], _batch(at)
        tally = self._tally(task, self._rows[at])
        if self._without != "leftovers_ignored":
            try:
                tally.check_all_taken()
            except SinkReplayDiffers:
                return _with(state, at, task._replace(state="differs"))
        if self._without == "no_end":
            return _with(state, at, task._replace(state="done"))
        if not _holds(state, task.fence, task.query):
            return _with(state, at, task._replace(state="failed"))
        end = LoggedRecord(batch, EndRecord(batch, 0, tally.rows, tally.sum))
        return _with(state._replace(log=(*state.log, end)), at, task._replace(state="done"))

    def _arrive(self, state: ModelState, at: int) -> ModelState:
        """Decide the oldest append in flight."""
        task, sent = state.tasks[at], state.flying[at][0]
        after = state._replace(flying=_replaced(state.flying, at, state.flying[at][1:]))
        if self._without == "rows_without_condition" or _holds(state, sent.partition, sent.query):
            return after._replace(log=(*state.log, LoggedRecord(sent.batch, sent.row)))
        return _with(after, at, task._replace(state="failed") if task.state == "run" else task)


def _batch(at: int) -> int:
    return 2 if at == 2 else 1


def _row(text: str) -> SinkRow:
    return SinkRow(text.encode())


def _replaced(
    flying: tuple[tuple[RowInFlight, ...], ...], at: int, by: tuple[RowInFlight, ...]
) -> tuple[tuple[RowInFlight, ...], ...]:
    return (*flying[:at], by, *flying[at + 1 :])


def _with(state: ModelState, at: int, task: TaskState) -> ModelState:
    tasks = list(state.tasks)
    tasks[at] = task
    return state._replace(tasks=(tasks[0], tasks[1], tasks[2]))


def _committed(state: ModelState) -> bool:
    return any(isinstance(one.what, CommitRecord) and one.what.batch == 1 for one in state.log)


def _newest(state: ModelState, *kinds: type[Control]) -> NewestRecord | None:
    for at in range(len(state.log) - 1, -1, -1):
        what = state.log[at].what
        if not isinstance(what, str) and isinstance(what, kinds):
            return NewestRecord(at, what)
    return None


def _holds(state: ModelState, partition: int, query: int) -> bool:
    """Return whether both streams still have the newest records that a condition names."""
    newest, committed = _newest(state, AttemptRecord, EndRecord), _newest(state, CommitRecord)
    return newest is not None and newest.seqnum == partition and committed is not None and committed.seqnum == query
