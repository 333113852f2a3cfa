"""For tests of plans: a plan of a state in one go, and the records that it names."""

from __future__ import annotations

from collections.abc import Mapping

from boki_common.ids import seqnum
from boki_logbook.index.places import ShardPlace, TermPlaces
from boki_logbook.index.sorted_run import U64
from boki_logbook.scan.facts import LIVE, Committed, Offset, ScanRange
from boki_logbook.scan.pages import Metalog, capture, pages_of
from boki_logbook.scan.plan import Plan, PlanBuilder
from boki_logbook.state.state import DecisionState
from boki_logbook.testing.cluster import RunSpec, make_batch

ALL_SLOTS = ((0, 1023),)


def no_metalog(_: int) -> None:
    """Where no carried entries are looked for."""


def plan_of(
    state: DecisionState,
    asked: ScanRange,
    mode: str = LIVE,
    *,
    covered: Mapping[int, int] | None = None,
    metalog: Metalog = no_metalog,
) -> Plan:
    """The plan of a range, as the state is now."""
    builder = PlanBuilder(asked, mode)
    for page in pages_of(capture(state, covered, asked, mode, metalog)):
        builder.take(page)
    return builder.finish()


def committed_of(state: DecisionState, *, covered: Mapping[int, int] | None = None) -> Committed:
    """What a state has."""
    return plan_of(state, ScanRange({}, {}), covered=covered).committed


def everything(state: DecisionState, start: Offset | None = None) -> ScanRange:
    """From an offset, or the beginning, to the end of a state."""
    return ScanRange(start or {}, committed_of(state).end)


def positions_of(spans: U64) -> list[int]:
    """Spans, one by one."""
    return [pos for first, stop in spans.tolist() for pos in range(first, stop)]


def seqnums_of(plan: Plan) -> list[int]:
    """The records to deliver."""
    return [seqnum(one.facts.term, pos) for one in plan.terms for pos in positions_of(one.rows)]


def begin(
    state: DecisionState, term: int, *, log: int = 0, slots: tuple[tuple[int, int], ...] = ALL_SLOTS, shards: int = 1
) -> TermPlaces:
    """A term with some shards, whose data ledgers are 100 * term and what follows."""
    places = state.begin_term(term, log, slots)
    for number in range(shards):
        places.shards[number] = ShardPlace(term, number, 100 * term + number, "e")
    return places


def apply(state: DecisionState, places: TermPlaces, *runs: RunSpec, shard: int = 0, time_ms: int = 1_000) -> int:
    """The next entry of a shard; returns the position of its first record."""
    first = places.end_pos
    state.apply_entry(places, make_batch(*runs), shard=shard, entry=places.shards[shard].entries, time_ms=time_ms)
    return first
