"""The numbers of a writer against a plain log, in every order: sent, ordered, answered, answered early, lost, sent again, taken back,
given up, asked for, voided, forgotten; and a book that is trimmed and forgotten meanwhile. Small bounds, all of it: each state that
can be reached is visited once.

The log here is the definition: per writer, dense numbers, each decided once. What is checked in every state:

- a record that was answered with a seqnum is in the log there, and nowhere else; no record is in the log twice;
- what was answered as not in the log is not, then or later;
- records of one session are in the log in the order of the calls, but for those that were given up;
- nothing is in the log that nobody appended: what fills a hole is no record, also in a book that has none any more;
- what was given up is voided only if it, or one behind it, was settled;
- what is undecided has dense numbers from `low` on, and nothing is decided that was not sent;
- from every state everything can still be decided.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import pytest

from boki._arguments import NO_EXPECTATIONS, Expectations, encode_tags
from boki._in_doubt import InDoubt
from boki._numbers import Numbers
from boki._outbox import Outbox
from boki._session import Session
from boki._special import NOTHING
from boki._ticket import Ticket
from boki._verdicts import Stalled, answered, asked, forgotten_of, unknown
from boki.testing._engine import appends_of
from boki.testing._model import Append
from boki_common.engine.answers import AnswerRow
from boki_common.engine.engine_protocol import Verdict
from boki_common.errors import BokiError, Conflict, OutcomeUnknown, Unreachable
from boki_common.records.batch_builder import BatchBuilder
from boki_common.records.record_batch import RUN_RESENT, RecordBatch

TAGS: Final = encode_tags(())
LOSING: Final = Expectations(((7, 0),), {})
"""An expectation that fails whenever it is looked at."""
SESSION: Final = Session()
OUTBOX: Final = Outbox()
BOOK: Final = 1

Row: TypeAlias = tuple[bytes, int, int, int]
"""Writer, number, seqnum or last number, verdict."""
Frame: TypeAlias = tuple[tuple[bytes, int, bytes, bool, bool, bool], ...]
"""Of each record its writer, number, data; whether it must lose, is void, and was marked as resent."""


@dataclass
class Log:
    """What certainly is decided."""

    last: dict[bytes, int] = field(default_factory=dict)
    answers: dict[tuple[bytes, int], Row] = field(default_factory=dict)
    records: tuple[bytes, ...] = ()
    trimmed: int = 0
    """So many of the records are forgotten, with the streams that had them."""
    forgotten: frozenset[bytes] = frozenset()

    def append(self, one: tuple[bytes, int, bytes, bool, bool, bool]) -> Row:
        writer, number, data, fails, void, _ = one
        loses = fails and (data != b"" or self.trimmed < len(self.records))
        last = self.last.get(writer, 0)
        if number <= last:
            return self.answers[writer, number]
        if number > last + 1:
            return writer, number, last, int(Verdict.GAP)
        if writer in self.forgotten:
            return writer, number, 0, int(Verdict.TOO_OLD)
        verdict, seqnum = Verdict.NEVER if void else Verdict.CONFLICT if loses else Verdict.COMMITTED, 0
        if verdict == Verdict.COMMITTED:
            self.records += (data,)
            seqnum = len(self.records)
        self.last[writer] = number
        row = self.answers[writer, number] = writer, number, seqnum, int(verdict)
        return row

    def forget(self, writer: bytes) -> None:
        self.last.pop(writer, None)
        self.forgotten |= {writer}

    def copy(self) -> Log:
        return replace(self, last=dict(self.last), answers=dict(self.answers))


@dataclass(frozen=True)
class Bounds:
    """What may happen, and how often."""

    records: int
    losers: int = 0
    lost: int = 0
    cuts: int = 1
    early: bool = False
    withdrawn: int = 0
    given_up: int = 0
    settled_apart: int = 0
    forgotten: int = 0
    trims: int = 0


class World:
    """A client that appends to one book, the way to its engine, and the log."""

    def __init__(self, left: Bounds) -> None:
        self.left = left
        self.numbers = Numbers(SESSION, BOOK, OUTBOX)
        self.writers = 0
        self.log = Log()
        self.tickets: list[Ticket] = []
        self.way: tuple[Frame, ...] = ()
        self.late: tuple[Frame, ...] = ()
        self.rows: tuple[Row, ...] = ()
        self.in_doubt: InDoubt[Ticket] | None = None
        self.inquiry: Numbers | None = None
        self.asked: dict[int, Ticket] = {}
        self.settled = 0

    def writer(self) -> bytes:
        self.writers += 1
        return b"%016d" % self.writers

    # -- what may happen

    def steps(self) -> Iterator[str]:
        left, numbers = self.left, self.numbers
        if left.records:
            yield "submit"
            if left.losers:
                yield "submit loser"
        for name, one in (("", numbers), (" again", self.inquiry)):
            if one is not None:
                if one.queued is not None and not one.stalled:
                    yield "send" + name
                if one.stalled:
                    yield "resume" + name
        if self.way:
            yield "order"
            if left.early and any(loses and not resent for _, _, _, loses, _, resent in self.way[0]):
                yield "early"
            if left.lost:
                yield "lose"
        if self.late:
            yield "order late"
        if self.rows:
            yield "answer"
        if numbers.oldest is not None or self.inquiry is not None:
            yield "cut"
            if self.way and not self.late and left.cuts:
                yield "cut late"
        if left.withdrawn and numbers.newest is not None and numbers.newest.first > numbers.sent:
            yield "withdraw"
        if left.given_up and numbers.oldest is not None:
            yield "give up"
        if self.in_doubt is not None:
            first, last = self.in_doubt._first, max(item.first for item in self.in_doubt._items)
            if last not in self.asked:
                yield "ask"
                yield "settle"
            if left.settled_apart and first < last:
                yield "settle first"
        if left.trims and self.log.records:
            yield "trim"
        if left.forgotten and numbers.writer in self.log.last:
            yield "forget"

    def take(self, step: str) -> None:
        left = self.left
        match step:
            case "submit" | "submit loser":
                loses = step == "submit loser"
                self.left = replace(left, records=left.records - 1, losers=left.losers - loses)
                self.tickets.append(Ticket(TAGS, b"%d" % len(self.tickets), LOSING if loses else NO_EXPECTATIONS))
                assert self.numbers.add(self.tickets[-1], 0.0) or self.numbers.add(self.tickets[-1], 0.0, self.writer())
            case "send":
                self.send(self.numbers)
            case "send again":
                assert self.inquiry is not None
                self.send(self.inquiry)
            case "resume":
                self.numbers.resume(self.numbers.writer)
            case "resume again":
                assert self.inquiry is not None
                self.inquiry.resume(self.inquiry.writer)
            case "order":
                frame, self.way = self.way[0], self.way[1:]
                self.rows += tuple(self.log.append(one) for one in frame)
            case "early":
                self.left = replace(left, early=False)
                self.rows += tuple(
                    (writer, number, 0, int(Verdict.CONFLICT))
                    for writer, number, _, loses, _, resent in self.way[0]
                    if loses and not resent
                )
            case "lose":
                self.left, self.way = replace(left, lost=left.lost - 1), self.way[1:]
            case "order late":
                frame, self.late = self.late[0], self.late[1:]
                for one in frame:
                    self.log.append(one)
            case "answer":
                row, self.rows = self.rows[0], self.rows[1:]
                self.answer(row)
            case "cut" | "cut late":
                if step == "cut late":
                    self.left, self.late = replace(left, cuts=left.cuts - 1), self.way
                self.way, self.rows = (), ()
                for numbers in (self.numbers, self.inquiry):
                    if numbers is not None and numbers.oldest is not None:
                        numbers.connection_lost()
            case "withdraw":
                self.left, item = replace(left, withdrawn=left.withdrawn - 1), self.numbers.newest
                assert item is not None and self.numbers.withdraw(item)
                item.failed(item.first, item.first + 1, Unreachable("taken back"))
            case "give up":
                self.left = replace(left, given_up=left.given_up - 1)
                writer = self.numbers.writer
                self.fail(lambda number: unknown("", number, writer, BOOK))
            case "ask" | "settle" | "settle first":
                first = step == "settle first"
                self.left = replace(left, settled_apart=left.settled_apart - first)
                self.ask(settle=step != "ask", first=first)
            case "trim":
                self.left = replace(left, trims=left.trims - 1)
                self.log.trimmed = len(self.log.records)
            case "forget":
                self.left = replace(left, forgotten=left.forgotten - 1)
                self.log.forget(self.numbers.writer)
            case _:
                raise AssertionError(step)

    def send(self, numbers: Numbers) -> None:
        builder = BatchBuilder()
        numbers.fill(builder)
        batch = RecordBatch.parse(memoryview(b"".join(builder.finish())))
        assert len(batch.runs) <= 2, "one run of voids at most, and one of records"
        resent = [bool(run.flags & RUN_RESENT) for run in batch.runs for _ in range(run.count)]
        self.way += (tuple(map(_wired, appends_of(batch), resent)),)

    def answer(self, row: Row) -> None:
        writer, number, seqnum, verdict = row
        of_answer = AnswerRow(BOOK, writer, number, seqnum, seqnum, 1, verdict)
        if writer == self.numbers.writer and self.numbers.oldest is not None:
            refusal = answered(self.numbers, of_answer, {}, 0.0)
            forgotten = refusal is not None and not isinstance(refusal, Stalled)
            if forgotten and not self.numbers.pass_on(self.writer()):
                self.fail(lambda number: forgotten_of(number, writer))
        inquiry = self.inquiry
        if inquiry is not None and writer == inquiry.writer and inquiry.oldest is not None:
            refusal = asked(inquiry, of_answer, {}, 0.0)
            if refusal is not None and not isinstance(refusal, Stalled):
                for item, _ in inquiry.end():
                    item.failed(item.first, item.first + 1, forgotten_of(item.first, writer))

    def fail(self, sent: Callable[[int], BokiError]) -> None:
        in_doubt = InDoubt(self.numbers, Ticket)
        items = self.numbers.end()
        for item, was_sent in items:
            item.failed(item.first, item.first + 1, sent(item.first) if was_sent else Unreachable("nothing was sent"))
        if any(was_sent for _, was_sent in items) and self.in_doubt is None:
            self.in_doubt = in_doubt

    def ask(self, *, settle: bool, first: bool) -> None:
        assert self.in_doubt is not None
        inquiry = self.inquiry = self.in_doubt.inquiry()
        number = self.in_doubt._first if first else max(item.first for item in self.in_doubt._items)
        if settle:
            self.settled = max(self.settled, number)
            self.in_doubt.settle(inquiry, number)
        for item in self.in_doubt.wanted(inquiry, number):
            assert inquiry.add(item, 0.0)
        self.asked[number] = self.in_doubt.asked(number)

    # -- what must hold

    def check(self) -> None:
        records = self.log.records
        assert b"" not in records, "a record that nobody appended"
        assert len(set(records)) == len(records), "a record is in the log twice"
        kept = [data for data in records if not isinstance(self.tickets[int(data)]._outcome, OutcomeUnknown)]
        assert kept == sorted(kept), "out of the order of the calls"
        for ticket, data in zip(self.tickets, map(str.encode, map(str, range(len(self.tickets)))), strict=True):
            outcome = ticket._outcome
            if isinstance(outcome, int):
                assert records[outcome - 1] == data, "it was told another record's place"
            elif isinstance(outcome, BokiError) and outcome.definite:
                assert data not in records, f"it was told {outcome!r}, and is in the log"
        for number, asked_for in self.asked.items():
            assert self.in_doubt is not None
            (data,) = {item.contents()[0][1] for item in self.in_doubt._items if item.first == number}
            outcome = asked_for._outcome
            never = isinstance(outcome, BokiError) and outcome.facts.get("never")
            assert not isinstance(outcome, int) or records[outcome - 1] == data
            assert not (isinstance(outcome, Conflict) or never) or data not in records
            assert not never or number <= self.settled, "voided, though nobody settled it"
        for numbers in (self.numbers, self.inquiry):
            if numbers is not None:
                check_shape(numbers)

    @property
    def done(self) -> bool:
        waits = self.inquiry is not None and self.inquiry.oldest is not None
        return not waits and self.numbers.oldest is None

    # -- states

    def key(self) -> object:
        return (
            self.left, self.way, self.late, self.rows, self.writers, self.log.records, self.log.trimmed, self.log.forgotten,
            tuple(self.log.last.items()), tuple(sorted(self.log.answers.items())), _key_of(self.numbers), _key_of(self.inquiry),
            tuple(_outcome(ticket) for ticket in self.tickets), self.settled,
            tuple((number, _outcome(ticket)) for number, ticket in self.asked.items()),
        )  # fmt: skip

    def copy(self) -> World:
        """Tickets, and whoever has them, are copied with all that they are linked to."""
        other = copy.copy(self)
        other.log = self.log.copy()
        memo: dict[int, object] = {id(one): one for one in (NOTHING, SESSION, OUTBOX, TAGS, LOSING, NO_EXPECTATIONS)}
        parts = self.numbers, self.tickets, self.in_doubt, self.inquiry, self.asked
        other.numbers, other.tickets, other.in_doubt, other.inquiry, other.asked = copy.deepcopy(parts, memo)
        return other


def _wired(one: Append, resent: bool) -> tuple[bytes, int, bytes, bool, bool, bool]:
    return one.writer, one.number, one.payload[2:], bool(one.expect), one.void, resent


def _outcome(ticket: Ticket) -> object:
    outcome = ticket._outcome
    return outcome if outcome is None or isinstance(outcome, int) else (type(outcome), outcome.facts.get("never"))


def _key_of(numbers: Numbers | None) -> object:
    if numbers is None:
        return None
    special = numbers.special
    return (
        numbers.key, numbers.low, numbers.next_number, numbers.ordered, numbers.queued and numbers.queued.first,
        special.flags, special.stale, special.stalled, special.filled_from, special.next_hole, special.sent_again,
        special.voided_to,
        tuple((item.first, item.decided) for item in numbers.items()),
    )  # fmt: skip


def check_shape(numbers: Numbers) -> None:
    items = numbers.items()
    assert [item.first for item in items] == list(range(numbers.low, numbers.next_number)), "a hole"
    assert numbers.bytes == sum(item.size for item in items)
    assert (numbers.oldest, numbers.newest) == ((items[0], items[-1]) if items else (None, None))
    assert numbers.queued is None or numbers.queued in items
    assert all(item.first <= numbers.sent for item in items if item.decided), (
        "a number that was not sent decides nothing"
    )
    assert not items or not items[0].decided, "what is decided at the front is let go"


def explore(bounds: Bounds) -> int:
    """Visits every state. Returns how many there are."""
    first = World(bounds)
    seen: dict[object, int] = {first.key(): 0}
    before: list[list[int]] = [[]]
    done: list[int] = []
    open_states: deque[tuple[World, int, tuple[str, ...]]] = deque([(first, 0, ())])
    while open_states:
        world, at, trace = open_states.popleft()
        for step in world.steps():
            after = world.copy()
            try:
                after.take(step)
                after.check()
            except BaseException as fault:
                raise AssertionError(f"after {', '.join((*trace, step))}: {fault!r}") from fault
            key = after.key()
            known = seen.get(key)
            if known is None:
                known = seen[key] = len(before)
                before.append([])
                open_states.append((after, known, (*trace, step)))
                if after.done:
                    done.append(known)
            before[known].append(at)
    reached, waiting = set(done), list(done)
    while waiting:
        for at in before[waiting.pop()]:
            if at not in reached:
                reached.add(at)
                waiting.append(at)
    assert len(reached | {0}) == len(before), "there are states from which not everything can be decided"
    return len(before)


@pytest.mark.parametrize(
    "bounds",
    [
        pytest.param(Bounds(3, lost=1, cuts=1), id="frames are lost", marks=pytest.mark.nightly),
        pytest.param(
            Bounds(3, losers=1, early=True, lost=1, cuts=0),
            id="conflicts are told early, and lost",
            marks=pytest.mark.nightly,
        ),
        pytest.param(Bounds(2, losers=2, early=True, lost=1, cuts=1), id="conflicts are told early, and sent again"),
        pytest.param(
            Bounds(2, losers=1, early=True, lost=1, cuts=0, trims=1),
            id="a conflict is told early, and the book is forgotten",
        ),
        pytest.param(Bounds(3, withdrawn=2, cuts=1), id="what was not sent is taken back"),
        pytest.param(
            Bounds(2, given_up=1, cuts=1), id="what was sent is given up and asked for", marks=pytest.mark.nightly
        ),
        pytest.param(Bounds(2, losers=1, given_up=1, lost=1, cuts=0), id="what was given up and is lost is asked for"),
        pytest.param(Bounds(2, given_up=1, settled_apart=1, cuts=0), id="the first of what was given up is settled"),
        pytest.param(
            Bounds(2, given_up=1, settled_apart=1, forgotten=1, cuts=0),
            id="the log forgets a writer that is asked for twice",
        ),
        pytest.param(Bounds(2, forgotten=1, cuts=1), id="the log forgets the writer"),
        pytest.param(Bounds(2, forgotten=1, given_up=1, cuts=0), id="the log forgets a writer that was given up"),
    ],
)
def test_in_every_order_the_log_and_its_caller_agree(bounds: Bounds) -> None:
    assert explore(bounds) > 100
