"""What a cursor makes of answers: every short execution of one that follows two tags, over the engine's own look-ups.

A log of records and trims; two engines that apply it at their own pace; answers of one record that arrive, or are lost with the
connection; tags that are added on the way. Always: no record of a tag at or below the position is missing without a gap of one of
its tags, none comes twice (but with a tag that was added), none before an older one of a tag, no gap of a tag twice, none for what was
looked at, and the position never falls. Variants with a rule left out are found out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import pytest

from boki._followed import Answer, Followed, FollowedTag, merged
from boki._record import Gap, Record
from boki_common.engine.engine_protocol import GapKind, GapRow
from boki_common.engine.tag_reads import TagRow
from boki_common.ids import tag_id
from boki_logbook.index.index import Index
from boki_logbook.read.tag_lookup import trimmed_rows, union
from boki_logbook.testing.cluster import RecordSpec, RunSpec, make_batch

BOOK = 1
END = 2**63
ALICE = bytes(15) + b"a"
FORGET_AGE = 2
"""Entries of the log."""


class Rules(NamedTuple):
    """Each is as it should be, or left out."""

    floor: bool = True
    gap_of_its_tag: bool = True
    never_falls: bool = True
    looked: bool = True
    reported_once: bool = True
    backlog: bool = True
    asked_again: bool = True


class Engine(NamedTuple):
    """The state of an engine that has applied a part of the log."""

    streams: Index
    floor: int


@lru_cache(maxsize=100_000)
def applied(log: tuple[Any, ...]) -> Engine:
    """Entry i of the log has seqnum i + 1."""
    index, floor = Index(), 0
    for at, entry in enumerate(log):
        seqnum = at + 1
        if entry[0] == "record":
            batch = make_batch(RunSpec(BOOK, ALICE, at + 1, records=(RecordSpec(tuple(map(tag_id, entry[1]))),)))
            index.add(batch, 0, 1, seqnum)
        else:
            _, tag, forget = entry
            number = 0 if tag == "book" else tag_id(tag)
            index.trim(BOOK, [(number, seqnum)])
            if forget:
                old = seqnum - FORGET_AGE
                floor = max(floor, index.forget(BOOK, [number], old.__ge__))
    return Engine(index, floor)


class Broken(Followed):
    """One with a rule left out."""

    def __init__(self, rules: Rules) -> None:
        super().__init__("book", 2)
        self.rules = rules

    def take(self, request: Any, answer: Answer, stop: int) -> list[Record | Gap]:
        before = self.position
        if not self.rules.gap_of_its_tag and answer.gaps:
            last = max(gap.last for gap in answer.gaps)
            kept = [record for record in answer.records if record.seqnum > last]
            answer = answer._replace(records=kept, last=max(answer.last, last))
        items = super().take(request, answer, stop)
        if not self.rules.reported_once:
            for one in request.tags:
                one.next = min(one.next, max(answer.last if answer.more else answer.position, request.start - 1) + 1)
        if not self.rules.never_falls and not answer.more:
            self.position = answer.position
            for one in request.tags:
                one.next = answer.position + 1
        assert not self.rules.never_falls or self.position >= before
        return items


class World(NamedTuple):
    log: tuple[Any, ...]
    engines: tuple[int, int]
    on: int
    tags: tuple[tuple[str, int, bool, bool], ...]
    position: int
    token: int
    given: tuple[int, ...]
    gaps: tuple[tuple[str, int, int], ...]
    flight: Any
    records_left: int
    trims_left: int
    losses_left: int
    adds_left: int


START = World((("record", "z"),), (1, 1), 0, (), 1, 1, (), (), None, 0, 0, 0, 0)


def cursor_of(world: World, rules: Rules) -> Broken:
    followed = Broken(rules)
    followed.position = world.position
    for tag, following, reported, beginning in world.tags:
        one = FollowedTag(tag, tag_id(tag), following)
        one.reports_gaps, one.from_beginning = reported, beginning
        followed._tags[one.number] = one
    return followed


def rows_of(followed: Followed) -> tuple[tuple[str, int, bool, bool], ...]:
    return tuple((str(one.tag), one.next, one.reports_gaps, one.from_beginning) for one in followed._tags.values())


def page(
    world: World, rows: tuple[TagRow, ...], start: int, looked: int, rules: Rules
) -> tuple[list[int], bool, list[GapRow]]:
    covered = world.engines[world.on]
    index, floor = applied(world.log[:covered])
    found, more = union(index, BOOK, rows, start=start, stop=covered + 1, limit=1)
    return found, more, trimmed_rows(index, floor if rules.floor else 0, BOOK, rows, looked=looked, stop=END)


def moves(world: World, rules: Rules, *, consistency_any: bool, forget: bool, books: bool) -> Iterator[tuple[str, Any]]:
    length = len(world.log)
    if world.records_left:
        for tags in ("a", "b", "ab", "z" if books else "az"):
            yield (
                f"append {tags}",
                world._replace(log=(*world.log, ("record", tags)), records_left=world.records_left - 1),
            )
    if world.trims_left:
        for tag in ("a", "book") if books else ("a",) if forget else ("a", "b"):
            for forgets in (False, True) if forget and tag != "book" else (False,):
                log = (*world.log, ("trim", tag, forgets))
                yield f"trim {tag} {forgets}", world._replace(log=log, trims_left=world.trims_left - 1)
    for engine in (0, 1):
        at = world.engines[engine]
        if at < length:
            entry = world.log[at]
            moved = world._replace(engines=(at + 1, world.engines[1]) if engine == 0 else (world.engines[0], at + 1))
            if engine == world.on and world.flight and world.flight[0] == "parked" and entry[0] == "record":
                _, rows, start, looked, _ = world.flight
                if any(tag_id(tag) in {row.tag for row in rows} for tag in entry[1]) and at + 1 >= looked:
                    moved = moved._replace(flight=("woken", rows, start, at + 1 if rules.looked else looked, at + 1))
            yield f"engine {engine} applies", moved
    followed = cursor_of(world, rules)
    covered = world.engines[world.on]
    flight: tuple[Any, ...] | None
    if world.adds_left and length > 1:
        added = cursor_of(world, rules)
        added.add("b", tag_id("b"), 2 if rules.backlog else world.position + 1)
        flight = world.flight
        is_kept = not rules.asked_again and flight is not None and flight[0] == "answer"
        flight = (*flight, "without b") if is_kept and flight is not None else None
        yield "add b", world._replace(tags=rows_of(added), adds_left=0, flight=flight)
    if world.flight is None:
        if consistency_any or covered >= world.token:
            request = followed.request()
            found, more, gaps = page(world, request.rows, request.start, request.start, rules)
            flight = ("answer", request.start, found, more, gaps, covered, 0)
            if not found and not gaps:
                flight = ("parked", request.rows, request.start, max(request.start, covered + 1), 0)
            yield "ask", world._replace(flight=flight)
    elif world.flight[0] in ("parked", "woken"):
        kind, rows, start, looked, really = world.flight
        if kind == "parked":
            really = max(looked, covered + 1)
            looked = really if rules.looked else looked
        found, more, gaps = page(world, rows, start, looked, rules)
        if kind == "parked" or found or gaps:
            yield f"{kind} answers", world._replace(flight=("answer", start, found, more, gaps, covered, really))
        else:
            yield "parks again", world._replace(flight=("parked", rows, start, max(start, covered + 1), 0))
    else:
        yield "answer arrives", arrived(world, followed, rules, consistency_any=consistency_any)
    if world.losses_left and world.flight is not None:
        for engine in (0, 1):
            yield f"lost, to {engine}", world._replace(flight=None, on=engine, losses_left=0)


def arrived(world: World, followed: Broken, rules: Rules, *, consistency_any: bool) -> Any:
    _, start, found, more, gaps, covered, looked, *without = world.flight
    if any(gap.first < looked for gap in gaps):
        return "a gap for what was looked at"
    records = [Record(seqnum, tuple(world.log[seqnum - 1][1]), b"", None, "book", 0) for seqnum in found]
    request = followed.request()
    if without:
        request = request._replace(tags=request.tags[:-1], rows=request.rows[:-1], start=start)
    assert request.start == start
    answer = Answer(records, gaps, (), more, covered, found[-1] if found else 0)
    items = followed.take(request, answer, END)
    given, reported = world.given, world.gaps
    for item in items:
        if isinstance(item, Gap):
            if not rules.reported_once or rules.gap_of_its_tag:
                for tag, first, last in reported:
                    if tag == item.tag and item.first <= last and item.last >= first and not world.adds_left:
                        return f"a gap of {tag} twice"
            reported = (*reported, (str(item.tag), item.first, item.last))
        elif item.seqnum in given and not (len(world.tags) > 1 and "b" in item.tags and item.seqnum <= world.position):
            return f"record {item.seqnum} twice"
        else:
            if older := older_missing(world, followed, item, given, reported):
                return f"record {item.seqnum} comes before {older}"
            given = (*given, item.seqnum)
    if followed.position < world.position:
        return "the position fell"
    return world._replace(
        tags=rows_of(followed), position=followed.position, given=given, gaps=reported, flight=None,
        token=world.token if consistency_any else max(world.token, covered),
    )  # fmt: skip


def older_missing(
    world: World, followed: Followed, record: Record, given: tuple[int, ...], gaps: tuple[tuple[str, int, int], ...]
) -> int:
    """An older record of a tag that was neither given nor lies in a gap of the tag; 0 without one."""
    for tag in followed.tags:
        for seqnum in range(2, record.seqnum if tag in record.tags else 2):
            kind, tags, *_ = world.log[seqnum - 1]
            missing = kind == "record" and str(tag) in tags and seqnum not in given
            if missing and not any(one == tag and first <= seqnum <= last for one, first, last in gaps):
                return seqnum
    return 0


def fault(world: World) -> str | None:
    """What is wrong in a state."""
    followed = {tag: following for tag, following, _, _ in world.tags}
    for at, entry in enumerate(world.log):
        seqnum = at + 1
        if entry[0] != "record" or seqnum in world.given:
            continue
        seen = [tag for tag in entry[1] if followed.get(tag, 0) > seqnum and seqnum >= 2]
        if (
            seen
            and seqnum <= world.position
            and not any(tag in entry[1] and first <= seqnum <= last for tag, first, last in world.gaps)
        ):
            return f"record {seqnum} {entry[1]} is missing at position {world.position}"
    return None


def explore(
    rules: Rules, *, records: int, trims: int, losses: int = 0, adds: int = 0, tags: str = "ab",
    consistency_any: bool = False, forget: bool = False, books: bool = False,
) -> tuple[str | None, int]:  # fmt: skip
    """A shortest execution that goes wrong, if there is one, and how many states there are."""
    begin = cursor_of(START, rules)
    for tag in tags:
        begin.add(tag, tag_id(tag), 2)
    first = START._replace(
        tags=rows_of(begin), records_left=records, trims_left=trims, losses_left=losses, adds_left=adds
    )
    seen = {hash(repr(first))}
    todo: deque[tuple[World, tuple[str, ...]]] = deque([(first, ())])
    while todo:
        world, path = todo.popleft()
        for name, after in moves(world, rules, consistency_any=consistency_any, forget=forget, books=books):
            if isinstance(after, str):
                return f"{after}: {', '.join((*path, name))}", len(seen)
            if wrong := fault(after):
                return f"{wrong}: {', '.join((*path, name))}", len(seen)
            key = hash(repr(after))
            if key not in seen:
                seen.add(key)
                todo.append((after, (*path, name)))
    return None, len(seen)


RIGHT = Rules()


@pytest.mark.parametrize(
    "bounds",
    [
        {"records": 2, "trims": 1, "losses": 1},
        {"records": 2, "trims": 1, "losses": 1, "consistency_any": True},
        {"records": 2, "trims": 1, "losses": 1, "forget": True},
        {"records": 2, "trims": 1, "books": True},
        {"records": 2, "trims": 1, "adds": 1, "tags": "a"},
    ],
    ids=["session", "any", "forgetting", "whole books", "adding"],
)
def test_every_short_execution_gives_all_or_reports_a_gap_once(bounds: dict[str, Any]) -> None:
    found, states = explore(RIGHT, **bounds)
    assert found is None
    assert states > 1_000


@pytest.mark.parametrize(
    ("rules", "bounds", "expected"),
    [
        (RIGHT._replace(floor=False), {"records": 3, "trims": 1, "losses": 1, "forget": True}, "is missing"),
        (RIGHT._replace(gap_of_its_tag=False), {"records": 2, "trims": 1}, "is missing"),
        (RIGHT._replace(never_falls=False), {"records": 2, "trims": 0, "losses": 1, "consistency_any": True}, "fell"),
        (RIGHT._replace(looked=False), {"records": 2, "trims": 1, "books": True}, "looked at"),
        (RIGHT._replace(reported_once=False), {"records": 2, "trims": 1}, " twice"),
        (RIGHT._replace(backlog=False), {"records": 1, "trims": 0, "adds": 1, "tags": "a"}, "is missing"),
        (RIGHT._replace(asked_again=False), {"records": 2, "trims": 0, "adds": 1, "tags": "a"}, "comes before"),
    ],
    ids=lambda one: "",
)
def test_without_any_one_of_its_rules_it_goes_wrong(rules: Rules, bounds: dict[str, Any], expected: str) -> None:
    found, _ = explore(rules, **bounds)
    assert found is not None and expected in found


def test_items_are_in_order_and_gaps_before_what_lies_in_them() -> None:
    records = [Record(seqnum, (), b"", None, "b", 0) for seqnum in (3, 5, 9)]
    gaps = [Gap(GapKind.TRIMMED, first, last, "b") for first, last in ((4, 6), (1, 2), (9, 9), (12, 13))]
    assert [getattr(item, "first", None) or item.seqnum for item in merged(records, gaps)] == [1, 3, 4, 5, 9, 9, 12]
