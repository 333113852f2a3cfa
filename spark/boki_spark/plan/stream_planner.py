"""Plans of a stream's batches: asks a cluster and applies the rules of `stream_rules`. Runs in an event loop.

end = await planner.latest(start, max_rows=1000)
partitions = await planner.partitions(start, end)
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from boki_common.errors import InvalidArgument
from boki_common.ids import pos_of, slot_of, term_of
from boki_common.logs import get_logger
from boki_common.runtime.ports import Clock
from boki_common.runtime.process import SystemClock
from boki_logbook.scan.facts import COMMITTED, NOWHERE, Committed, Offset, ScanRange, reached
from boki_logbook.scan.limited import limited
from boki_logbook.scan.partitions import Partition, bounds_of, cut
from boki_logbook.scan.plan import Plan
from boki_spark.errors import BadOption, Behind, DataLoss
from boki_spark.plan import stream_rules as rules
from boki_spark.plan.read_options import ReadOptions
from boki_spark.plan.stream_rules import EARLIEST, BatchEnd, Beginning, RangeContent, Span, TermRun

_log = get_logger("spark")

T = TypeVar("T")

PAUSE_S: Final = 0.05
"""Seconds between two requests to a state that is behind."""


class Planner(Protocol):
    """The part of `boki_spark.plan.cluster.Cluster` that planning needs; a test has a second one."""

    async def committed(self) -> Committed: ...

    async def plan(self, asked: ScanRange, mode: str) -> Plan: ...

    async def seek(self, time_ms: int) -> dict[int, tuple[int, int]]: ...


class StreamPlanner:
    """The plans of one query. It keeps the partitions of the newest end, because Spark asks for them next."""

    def __init__(self, cluster: Planner, options: ReadOptions, *, clock: Clock | None = None) -> None:
        self._cluster = cluster
        self._options = options
        self._clock = clock or SystemClock()
        self._target: Offset | None = None
        self._last: tuple[str, list[Partition]] | None = None

    async def aim(self) -> None:
        """Limit all further batches to what is committed now, for Trigger.AvailableNow. Raises as `Cluster.committed`."""
        self._target = (await self._cluster.committed()).end

    async def latest(
        self, start: dict[str, Any], *, max_rows: int | None = None, max_bytes: int | None = None
    ) -> dict[str, Any]:
        """Return the end of the batch that begins at `start`, or `start` itself if there is nothing new.

        Raises:
            BadOffset: `start` is malformed.
            BadOption: the stream begins at a time in the future.
            Behind: no planning state reached `start` within the timeout.
            DataLoss: records of the range were given up, or trimmed with all of their term after the stream began.
            PipelineError: as `Cluster.plan`.
        """
        begin = rules.decode(start)
        known = begin.logs if isinstance(begin, BatchEnd) else begin.offset or {}
        committed = await self._retrying(lambda: self._covering(known, begin))
        if isinstance(begin, BatchEnd):
            first = begin.logs
        else:
            check_time(begin, committed, now_ms=self._clock.now_ms())
            first = await resolve(begin, committed, self._cluster.seek)
        end = rules.furthest(first, rules.capped(committed.end, self._target))
        if isinstance(begin, BatchEnd) and end == dict(first):
            return start
        plan = await self._plan(first, end)
        gone = gone_at_begin(begin, plan.committed, first)
        if max_rows is not None or max_bytes is not None:
            end = limited(plan, max_rows=max_rows, max_bytes=max_bytes)
            if isinstance(begin, BatchEnd) and end == dict(first):
                return start
            plan = await self._plan(first, end)
        lost = lost_spans(plan)
        if lost and self._options.fail_on_data_loss:
            raise loss(lost)
        self._check_unread(plan, gone)
        found = cut(plan, max_bytes=self._options.partition_bytes, least=self._options.partitions)
        cuts = tuple((term, low, high) for term, low, high in bounds_of(found))
        began = None if isinstance(begin, BatchEnd) else first
        ahead = rules.gone_ahead(plan.committed, end, gone)
        made = BatchEnd(end, began, plan.rows, cuts, lost, ahead).encode()
        self._last = json.dumps(made), found
        return made

    def _check_unread(self, plan: Plan, known: tuple[TermRun, ...]) -> None:
        """Check that no term of the range is gone, but those in `known`. Raises DataLoss, or warns with failOnDataLoss=false."""
        trimmed = trimmed_spans(plan, known)
        if trimmed and self._options.fail_on_data_loss:
            raise DataLoss(
                f"records that the stream has not read were trimmed with all of their term: {rules.listed(trimmed)}"
                f"{'' if self._options.book is None else ' (whether any was of its book is not known any more)'}; with "
                "failOnDataLoss=false the stream continues after them",
                trimmed=[list(span) for span in trimmed[:16]],
            )
        if trimmed:
            _log.warning(
                "stream continues after trimmed terms: unread records are left out", trimmed=rules.listed(trimmed)
            )

    async def _covering(self, offset: Offset, begin: Beginning | BatchEnd) -> Committed:
        committed = await self._cluster.committed()
        if isinstance(begin, Beginning) and begin.seqnum is not None and is_ahead(begin.seqnum, committed):
            raise Behind(
                f"expected startingSeqnum to be at most one above the newest record, found {begin.seqnum}: a stream that begins there "
                "would also deliver records below it"
            )
        if not reached(committed, offset):
            raise Behind(
                "expected who plans to have come as far as the stream: engines that serve fewer logs, or lag, cannot"
            )
        return committed

    async def _plan(self, start: Offset, end: Offset) -> Plan:
        asked = ScanRange(start, end, self._options.book, self._options.tags)
        return await self._retrying(lambda: self._cluster.plan(asked, COMMITTED))

    async def _retrying(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Retry a request while the planning state is behind. Raises Behind after the timeout."""
        behind: Behind | None = None
        try:
            async with asyncio.timeout(self._options.cluster.timeout_s):
                while True:
                    try:
                        return await ask()
                    except Behind as error:
                        behind = error
                    await asyncio.sleep(PAUSE_S)
        except TimeoutError:
            if behind is None:
                raise
            raise behind from None

    async def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Partition]:
        """Return the partitions of a batch. A batch that is run again has the same ones.

        Raises:
            BadOffset: an offset is malformed.
            DataLoss: the partitions would have other rows than before.
            PipelineError: as `Cluster.plan`.
        """
        if self._last is not None and self._last[0] == json.dumps(end):
            return self._last[1]
        first, kept = rules.bounds(rules.decode(start), rules.decode(end))
        plan = await self._plan(first, kept.logs)
        if self._options.fail_on_data_loss:
            rules.check_same(kept, RangeContent(plan.rows, lost_spans(plan)))
        return cut_again(plan, kept.cuts, strict=self._options.fail_on_data_loss)


def cut_again(plan: Plan, cuts: tuple[Span, ...], *, strict: bool) -> list[Partition]:
    """Return the partitions that were planned before.

    Raises:
        DataLoss: with `strict`, some of them do not exist any more.
    """
    found: list[Partition] = []
    for span in cuts:
        try:
            found += cut(plan, bounds=[list(span)])
        except InvalidArgument as error:
            if strict:
                raise loss((span,)) from error
    return found


def lost_spans(plan: Plan) -> tuple[Span, ...]:
    """Return the spans of a range that were given up, whether or not they had been indexed."""
    return tuple(
        (one.facts.term, span.first_pos, span.stop_pos) for one in plan.terms for span in (*one.lost, *one.given_up)
    )


def trimmed_spans(plan: Plan, known: tuple[TermRun, ...]) -> tuple[Span, ...]:
    """Return the spans of a range in terms that are gone and may have had records of the asked book.

    Args:
        known: runs of terms that are left out.
    """
    book = plan.asked.book
    slot = None if book is None else slot_of(book)
    return tuple(
        (one.facts.term, one.start_pos, one.stop_pos)
        for one in plan.terms
        if one.gone
        and not rules.in_runs(one.facts.term, known)
        and (slot is None or any(first <= slot <= last for first, last in one.facts.slots))
    )


def check_time(begin: Beginning, committed: Committed, *, now_ms: int) -> None:
    """Check that a stream does not begin in the future: it would also deliver what is ordered until then. Raises BadOption."""
    if begin.time_ms is not None and begin.time_ms > max(now_ms, committed.time_ms):
        raise BadOption(
            f"expected startingTimestamp of a stream not to be in the future, found {begin.time_ms} ms since 1970, now is {now_ms}"
        )


def is_ahead(place: int, committed: Committed) -> bool:
    """Return whether a seqnum is more than one above the newest record of its term, and further records may follow there."""
    term, facts = term_of(place), {one.term: one for one in committed.terms}
    if term in facts:
        return not facts[term].ended and pos_of(place) > facts[term].end_pos
    return term > max(facts, default=0)


def gone_at_begin(begin: Beginning | BatchEnd, committed: Committed, first: Offset) -> tuple[TermRun, ...]:
    """Return the terms from an offset on that were gone when the stream began, which are no loss.

    Args:
        committed: the present state.
        first: the position that `begin` means.
    """
    if isinstance(begin, BatchEnd):
        return begin.gone
    return () if begin.names_a_position else rules.gone_ahead(committed, first)


def loss(spans: tuple[Span, ...]) -> DataLoss:
    """Return the error for records that were given up."""
    return DataLoss(
        f"records were declared lost or do not exist any more: {rules.listed(spans)}; with failOnDataLoss=false the others are shown "
        "(`boki log show LOG --lost` shows why)",
        lost=[list(span) for span in spans[:16]],
    )


async def resolve(
    chosen: Beginning, committed: Committed, seek: Callable[[int], Awaitable[dict[int, tuple[int, int]]]]
) -> dict[int, tuple[int, int]]:
    """Return the offset that a beginning means in a state.

    A seqnum means the same term and position in every log, limited to the end of the log: a log with older terms only ends before it.
    """
    if chosen.offset is not None:
        return dict(chosen.offset)
    if chosen.seqnum is not None:
        term = term_of(chosen.seqnum)
        place = (term, pos_of(chosen.seqnum)) if term else NOWHERE
        return {log: min(place, end) for log, end in committed.end.items()}
    if chosen.time_ms is not None:
        return await seek(chosen.time_ms)
    return {} if chosen.word == EARLIEST else dict(committed.end)
