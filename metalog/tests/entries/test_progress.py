"""Cuts: the golden example, each refusal, and a plain model that keeps a list of every record."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from boki_common import limits
from boki_common.errors import CorruptData, InvalidArgument, Overloaded
from boki_metalog.entries.metalog_entry import (
    Carried,
    Close,
    Command,
    Expire,
    Lost,
    MetalogEntry,
    Open,
    ShardEnd,
    Trim,
    command_bytes,
    decode,
    encode,
)
from boki_metalog.entries.progress import CutBuilder, Order, ProgressVector, ShardRange, deltas
from boki_metalog.errors import ImpossibleReport, ShardNotOpen, TermFull

A, B, C = ("aa" * 16, "bb" * 16, "cc" * 16)


def builder_of(*incarnations: str) -> CutBuilder:
    """A builder whose shards 0, 1, … are open."""
    builder = CutBuilder()
    for number, incarnation in enumerate(incarnations):
        assert builder.open(incarnation, 100 + number) == number
    entry = builder.take(0)
    assert entry is not None and len(entry.commands) == len(incarnations)
    return builder


def take(builder: CutBuilder, now_ms: int = 0) -> MetalogEntry:
    entry = builder.take(now_ms)
    assert entry is not None
    return entry


def test_order_of_a_cut_is_shard_then_place_in_the_shard() -> None:
    """Three shards, as in figure 3 of the Boki paper: vectors (3, 1, 2), then (4, 3, 2)."""
    builder = builder_of(A, B, C)
    state = ProgressVector.after(MetalogEntry(0, 0, 0, tuple(ShardEnd(n, 0, 0) for n in range(3))))
    builder.report(2, 2, 1)
    builder.report(0, 3, 2)
    builder.report(1, 1, 1)
    first = take(builder, 50)
    assert first == MetalogEntry(0, 6, 50, (ShardEnd(0, 3, 2), ShardEnd(1, 1, 1), ShardEnd(2, 2, 1)))
    assert state.apply(first) == [
        ShardRange(0, 0, 3, 0, 2, 0),
        ShardRange(1, 0, 1, 0, 1, 3),
        ShardRange(2, 0, 2, 0, 1, 4),
    ]
    builder.report(1, 3, 2)
    builder.report(0, 4, 3)
    second = take(builder, 40)
    assert second.time_ms == 50, "time never runs back"
    assert state.apply(second) == [ShardRange(0, 3, 1, 2, 1, 6), ShardRange(1, 1, 2, 1, 1, 7)]
    assert state.end_pos == 9


def test_nothing_to_say_is_no_entry() -> None:
    builder = builder_of(A)
    assert builder.take(1) is None
    builder.report(0, 5, 1)
    take(builder)
    for records, entries in ((5, 1), (4, 1), (0, 0)):
        builder.report(0, records, entries)
    assert builder.take(2) is None


@pytest.mark.parametrize(
    ("records", "entries"),
    [(6, 1), (4, 2), (6, 0), (5 + limits.BATCH_RECORDS + 1, 2), (5, 2**62), (6, limits.POSITION_MAX + 1)],
    ids=[
        "records without entries",
        "fewer records",
        "fewer entries",
        "more records than entries hold",
        "more entries than there may be",
        "one too many",
    ],
)
def test_impossible_reports_are_refused(records: int, entries: int) -> None:
    builder = builder_of(A)
    builder.report(0, 5, 1)
    with pytest.raises(ImpossibleReport):
        builder.report(0, records, entries)
    assert take(builder).shards == (ShardEnd(0, 5, 1),)


def test_reports_need_an_open_shard() -> None:
    builder = builder_of(A)
    with pytest.raises(ShardNotOpen):
        builder.report(1, 1, 1)
    shard = builder.open(B, 7)
    with pytest.raises(ShardNotOpen):
        builder.report(shard, 1, 1)  # not ordered yet
    take(builder)
    builder.report(shard, 1, 1)
    builder.close(shard)
    with pytest.raises(ShardNotOpen):
        builder.report(shard, 2, 2)
    entry = take(builder)
    assert entry.shards == (ShardEnd(0, 0, 0), ShardEnd(shard, 1, 1)) and entry.commands == (Close(shard),)
    with pytest.raises(ShardNotOpen):
        builder.report(shard, 2, 2)
    assert builder.take(0) is None


def test_an_entry_that_was_overtaken_by_a_report_of_the_next_is_not_carried() -> None:
    """Everybody would take its bytes for those of the last entry that the cut names."""
    builder = builder_of(A)
    builder.report(0, 1, 1)
    builder.carry(0, 2, 2, b"the second")
    builder.report(0, 4, 3)
    assert take(builder) == MetalogEntry(0, 4, 0, (ShardEnd(0, 4, 3),))


def test_open_is_idempotent_and_never_reuses() -> None:
    builder = builder_of(A)
    assert builder.open(A, 100) == 0
    with pytest.raises(ShardNotOpen):
        builder.open(B, 100)
    builder.close(0)
    with pytest.raises(ShardNotOpen):
        builder.open(A, 100)
    assert builder.open(A, 101) == 1
    builder.close(0)
    entry = take(builder)
    assert entry.commands == (Close(0), Open(1, A, 101))
    builder.close(0)
    assert builder.take(0) is None
    with pytest.raises(ShardNotOpen):
        builder.close(2)


def test_a_shard_opened_and_closed_at_once() -> None:
    builder = CutBuilder()
    shard = builder.open(A, 1)
    builder.close(shard)
    state = ProgressVector()
    assert state.apply(take(builder)) == []
    assert state.shards == {} and state.next_shard == 1


def test_a_report_of_a_younger_shard_ends_the_older_ones_of_its_engine() -> None:
    builder = builder_of(A, A, B, A)
    builder.report(0, 4, 2)
    builder.report(2, 1, 1)
    builder.report(3, 10, 1)
    entry = take(builder)
    assert entry.shards == (ShardEnd(0, 4, 2), ShardEnd(1, 0, 0), ShardEnd(2, 1, 1), ShardEnd(3, 10, 1))
    assert entry.commands == (Close(0), Close(1))
    with pytest.raises(ShardNotOpen):
        builder.report(0, 5, 3)
    builder.close(0)
    assert builder.take(0) is None


def test_a_younger_shard_may_be_closed_unused() -> None:
    builder = builder_of(A, A)
    builder.close(1)
    builder.report(0, 10, 1)
    entry = take(builder)
    assert entry.shards == (ShardEnd(0, 10, 1), ShardEnd(1, 0, 0)) and entry.commands == (Close(1),)


def test_a_lost_engine() -> None:
    builder = builder_of(A, B, A)
    builder.report(0, 1, 1)
    assert builder.close_all_of(A) == [0, 2]
    assert builder.close_all_of(A) == []
    entry = take(builder)
    assert entry.commands == (Close(0), Close(2)) and entry.shards[0] == ShardEnd(0, 1, 1)
    assert builder.shards == {1: B}


def test_the_last_position_of_a_term(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "POSITION_MAX", 10)
    builder = CutBuilder()
    builder.open(A, 1)
    take(builder)
    builder.report(0, 10, 1)
    assert take(builder).end_pos == 10
    builder.report(0, 11, 2)
    builder.open(B, 2)
    for _ in range(2):
        with pytest.raises(TermFull):
            builder.take(0)


def test_the_last_shard_of_a_term(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TERM_SHARDS", 2)
    builder = builder_of(A, B)
    with pytest.raises(TermFull):
        builder.open(C, 9)


def test_many_commands_go_into_several_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "METALOG_COMMANDS", 2)
    builder = CutBuilder()
    for ledger in range(3):
        builder.open(A, ledger)
    state = ProgressVector()
    first = take(builder)
    assert [end.shard for end in first.shards] == [0, 1]
    state.apply(first)
    state.apply(take(builder))
    assert builder.take(0) is None and list(state.shards) == [0, 1, 2]


def trim(book: int, pairs: int = 1) -> Trim:
    return Trim(book, ((7, 9),) * pairs, False)


def test_commands_are_ordered_first_in_first_out_among_opens_and_closes() -> None:
    builder = builder_of(A)
    expire, lost = Expire(5, bytes(16), 3), Lost(1, 0, 2, 4, b"{}")
    builder.order(trim(1))
    shard = builder.open(B, 77)
    builder.order(expire)
    builder.report(0, 5, 1)
    builder.close(0)
    builder.order(lost)
    state = ProgressVector.after(MetalogEntry(0, 0, 0, (ShardEnd(0, 0, 0),)))
    entry = take(builder)
    assert entry.commands == (trim(1), Open(shard, B, 77), expire, Close(0), lost)
    assert state.apply(entry) == [ShardRange(0, 0, 5, 0, 1, 0)]
    assert list(state.shards) == [shard] and builder.take(0) is None


def test_many_large_commands_go_into_several_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "METALOG_COMMANDS_BYTES", 2 * command_bytes(trim(0, 3)))
    builder = CutBuilder()
    waiting = [trim(1), trim(2, 3), trim(3, 3), trim(4), trim(5), trim(6, 3)]
    for command in waiting:
        builder.order(command)
    entries = [take(builder) for _ in range(3)]
    assert [[one.book for one in entry.commands if isinstance(one, Trim)] for entry in entries] == [
        [1, 2],
        [3, 4],
        [5, 6],
    ]
    assert builder.take(0) is None


def test_what_cannot_be_stored_is_not_queued() -> None:
    builder = CutBuilder()
    with pytest.raises(InvalidArgument):
        builder.order(Trim(1, (), False))
    assert builder.take(0) is None


def test_the_commands_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ORDERS_WAITING", 3)
    monkeypatch.setattr(limits, "ORDERS_WAITING_BYTES", 2 * command_bytes(trim(0, 3)))
    builder = builder_of(A)
    for _ in range(3):
        for book in range(3):
            builder.order(trim(book))
        with pytest.raises(Overloaded):
            builder.order(trim(3))
        assert len([one for one in take(builder).commands if isinstance(one, Trim)]) == 3
        builder.order(trim(0, 3))
        builder.order(trim(1, 3))
        with pytest.raises(Overloaded):
            builder.order(trim(2))
        take(builder)
        assert builder.take(0) is None


def test_a_full_term_keeps_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "POSITION_MAX", 10)
    builder = builder_of(A)
    builder.order(trim(1))
    builder.barrier()
    builder.report(0, 11, 1)
    for _ in range(2):
        with pytest.raises(TermFull):
            builder.take(0)


class ModelOrder:
    """What `CutBuilder` does for one open shard, said without any of its means."""

    def __init__(self) -> None:
        self.reported = self.cut = self.asked = 0
        self.waiting: list[Order] = []
        self.barrier = False

    def do(self, step: str, builder: CutBuilder) -> None:
        if step == "report":
            self.reported += 1
            builder.report(0, self.reported, self.reported)
        elif step == "order":
            self.asked += 1
            self.waiting.append(trim(self.asked))
            builder.order(trim(self.asked))
        elif step == "barrier":
            self.barrier = True
            builder.barrier()
        else:
            entry = builder.take(0)
            if self.reported == self.cut and not self.waiting and not self.barrier:
                assert entry is None
                return
            commands: tuple[Command, ...] = tuple(self.waiting[:2])
            ends = (ShardEnd(0, self.reported, self.reported),)
            assert entry == MetalogEntry(self.cut, self.reported, 0, ends, commands)
            self.cut, self.waiting, self.barrier = self.reported, self.waiting[2:], False


def test_every_short_sequence_of_reports_commands_barriers_and_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "METALOG_COMMANDS", 2)
    for steps in product(("report", "order", "barrier", "take"), repeat=6):
        builder, plain = builder_of(A), ModelOrder()
        for step in (*steps, "take", "take", "take", "take"):
            plain.do(step, builder)


def test_time_begins_where_the_terms_before_ended() -> None:
    builder = CutBuilder(time_ms=500)
    builder.open(A, 1)
    assert take(builder, 400).time_ms == 500


BEFORE = ProgressVector(10, 100, (ShardEnd(0, 6, 2), ShardEnd(1, 4, 1)))
IMPOSSIBLE = {
    "gap in positions": MetalogEntry(11, 11, 100, (ShardEnd(0, 6, 2), ShardEnd(1, 4, 1))),
    "time runs back": MetalogEntry(10, 10, 99, (ShardEnd(0, 6, 2), ShardEnd(1, 4, 1))),
    "vector falls": MetalogEntry(10, 10, 100, (ShardEnd(0, 5, 2), ShardEnd(1, 5, 2))),
    "records without entries": MetalogEntry(10, 11, 100, (ShardEnd(0, 7, 2), ShardEnd(1, 4, 1))),
    "entries fall": MetalogEntry(10, 11, 100, (ShardEnd(0, 7, 1), ShardEnd(1, 4, 1))),
    "wrong end": MetalogEntry(10, 12, 100, (ShardEnd(0, 7, 3), ShardEnd(1, 4, 1))),
    "shard missing": MetalogEntry(10, 10, 100, (ShardEnd(0, 6, 2),)),
    "shard out of nowhere": MetalogEntry(10, 10, 100, (ShardEnd(0, 6, 2), ShardEnd(1, 4, 1), ShardEnd(2, 0, 0))),
    "shard replaced": MetalogEntry(10, 10, 100, (ShardEnd(0, 6, 2), ShardEnd(2, 0, 0))),
    "opened again": MetalogEntry(10, 10, 100, (ShardEnd(0, 6, 2), ShardEnd(1, 4, 1)), (Open(1, A, 5),)),
    "closed, never there": MetalogEntry(10, 10, 100, (ShardEnd(0, 6, 2), ShardEnd(1, 4, 1)), (Close(7),)),
    "closed twice": MetalogEntry(10, 10, 100, (ShardEnd(0, 6, 2), ShardEnd(1, 4, 1)), (Close(1), Close(1))),
    "opened, not listed": MetalogEntry(10, 10, 100, (ShardEnd(0, 6, 2), ShardEnd(1, 4, 1)), (Open(2, A, 5),)),
    "carried, nothing cut": MetalogEntry(10, 10, 100, (ShardEnd(0, 6, 2), ShardEnd(1, 4, 1)), (), (Carried(0, b"x"),)),
    "carried, another cut": MetalogEntry(
        10, 11, 100, (ShardEnd(0, 7, 3), ShardEnd(1, 4, 1)), (), (Carried(0, b"x"), Carried(1, b"x"))
    ),
    "carried, no records": MetalogEntry(10, 10, 100, (ShardEnd(0, 6, 3), ShardEnd(1, 4, 1)), (), (Carried(0, b"x"),)),
    "carried, no such shard": MetalogEntry(
        10, 11, 100, (ShardEnd(0, 7, 3), ShardEnd(1, 4, 1)), (), (Carried(2, b"x"),)
    ),
}


@pytest.mark.parametrize("entry", IMPOSSIBLE.values(), ids=list(IMPOSSIBLE))
def test_an_entry_that_cannot_follow_is_refused_whole(entry: MetalogEntry) -> None:
    state = ProgressVector(BEFORE.end_pos, BEFORE.time_ms, BEFORE.shards.values())
    with pytest.raises(CorruptData):
        state.apply(entry)
    assert (state.end_pos, state.time_ms, state.shards) == (BEFORE.end_pos, BEFORE.time_ms, BEFORE.shards)


class OrderMachine(RuleBasedStateMachine):
    """A builder and a reader of its entries, beside the plainest model: for each shard the list of its records, and the
    list of all records in the order they should have."""

    def __init__(self) -> None:
        super().__init__()
        self.builder = CutBuilder()
        self.reader = ProgressVector()
        self.ledger = 0
        self.now = 0
        self.owner: dict[int, str] = {}
        self.opened: set[int] = set()
        self.closing: list[int] = []
        self.acked: dict[int, list[int]] = {}
        """Shard → records of each entry that its quorum has and that was reported."""
        self.cut: dict[int, int] = {}
        """Shard → entries cut."""
        self.order: list[tuple[int, int]] = []
        self.read: list[tuple[int, int]] = []
        self.carrying: dict[int, bytes] = {}
        """Shard → its newest entry, if only the next cut makes it durable."""
        self.durable: dict[int, int] = {}
        """Shard → entries that its quorum or an entry that was taken has."""
        self.asked: list[Order] = []
        self.ordered: list[Command] = []
        self.barrier = False

    @rule(book=st.integers(0, 3))
    def ask_for_a_command(self, book: int) -> None:
        command = Trim(book, ((0, len(self.asked)),), False)
        self.builder.order(command)
        self.asked.append(command)

    @rule()
    def ask_for_a_barrier(self) -> None:
        self.builder.barrier()
        self.barrier = True

    @rule(owner=st.sampled_from((A, B, C)))
    def open(self, owner: str) -> None:
        self.ledger += 1
        shard = self.builder.open(owner, self.ledger)
        assert shard == len(self.owner)
        self.owner[shard] = owner
        self.acked[shard], self.cut[shard], self.durable[shard] = [], 0, 0

    @precondition(lambda self: self.owner)
    @rule(data=st.data(), batches=st.lists(st.integers(1, 4), max_size=3))
    def report(self, data: st.DataObject, batches: list[int]) -> None:
        shard = data.draw(st.sampled_from(sorted(self.owner)))
        known = self.acked[shard]
        end = [*known, *batches]
        if shard in self.opened and shard not in self.closing:
            self.builder.report(shard, sum(end), len(end))
            known.extend(batches)
            if batches:
                self.carrying.pop(shard, None)
                self.durable[shard] = len(known)
                older = [one for one in range(shard) if self.owner[one] == self.owner[shard]]
                self.closing += [one for one in older if one not in self.closing]
            stale = data.draw(st.integers(0, len(known)))
            self.builder.report(shard, sum(known[:stale]), stale)
        else:
            with pytest.raises(ShardNotOpen):
                self.builder.report(shard, sum(end), len(end))

    @precondition(lambda self: self.owner)
    @rule(data=st.data(), records=st.integers(0, 4), skipped=st.sampled_from((0, 0, 0, 1)))
    def carry(self, data: st.DataObject, records: int, skipped: int) -> None:
        shard = data.draw(st.sampled_from(sorted(self.owner)))
        known, body = self.acked[shard], b"%d of %d" % (len(self.acked[shard]), shard)
        records_end, entries_end = sum(known) + records, len(known) + 1 + skipped
        if shard not in self.opened or shard in self.closing:
            with pytest.raises(ShardNotOpen):
                self.builder.carry(shard, records_end, entries_end, body)
        elif skipped or not known or not records or shard in self.carrying:
            with pytest.raises(ImpossibleReport):
                self.builder.carry(shard, records_end, entries_end, body)
        else:
            for repeated in (body, b"later"):
                self.builder.carry(shard, records_end, entries_end, repeated)
            known.append(records)
            self.carrying[shard] = body

    @precondition(lambda self: self.owner)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        shard = data.draw(st.sampled_from(sorted(self.owner)))
        self.builder.close(shard)
        if shard not in self.closing:
            self.closing.append(shard)

    @rule(passed=st.integers(-3, 10))
    def take(self, passed: int) -> None:
        self.now += passed
        entry = self.builder.take(self.now)
        closed = [shard for shard in self.closing if self.cut[shard] >= 0]
        opens = sorted(set(self.owner) - self.opened)
        expected = []
        moved = False
        for shard in self.owner:
            if self.cut[shard] < 0:
                continue
            first = sum(self.acked[shard][: self.cut[shard]])
            end = sum(self.acked[shard])
            expected += [(shard, record) for record in range(first, end)]
            moved = moved or len(self.acked[shard]) > self.cut[shard]
            self.cut[shard] = len(self.acked[shard])
        waits = len(self.asked) > len(self.ordered)
        if entry is None:
            assert not opens and not closed and not moved and not waits and not self.barrier
            return
        assert opens or closed or moved or waits or self.barrier
        self.barrier = False
        assert entry.carried == tuple(sorted(self.carrying.items()))
        for cut in entry.shards:
            assert self.durable[cut.shard] + (cut.shard in self.carrying) == cut.entries_end, "nothing else may be lost"
            self.durable[cut.shard] = cut.entries_end
        self.carrying.clear()
        self.ordered += [command for command in entry.commands if isinstance(command, Trim)]
        assert self.ordered == self.asked, "few enough for one entry"
        self.order += expected
        self.opened.update(opens)
        for shard in closed:
            self.cut[shard] = -1
        self._read(decode(encode(entry)))

    def _read(self, entry: MetalogEntry) -> None:
        before = self.reader
        same = ProgressVector(before.end_pos, before.time_ms, before.shards.values(), before.next_shard)
        ranges = before.apply(entry)
        assert deltas(same, entry) == ranges
        for shard, first, count, _, _, pos in ranges:
            assert pos == len(self.read)
            self.read += [(shard, record) for record in range(first, first + count)]
        again = ProgressVector.after(entry)
        assert (again.end_pos, again.time_ms, again.shards) == (before.end_pos, before.time_ms, before.shards)

    @invariant()
    def what_is_read_is_what_was_ordered(self) -> None:
        assert self.read == self.order
        assert self.reader.end_pos == len(self.order) == self.builder.end_pos

    @invariant()
    def engines_are_first_in_first_out(self) -> None:
        for owner in (A, B, C):
            shards = [shard for shard, _ in self.order if self.owner[shard] == owner]
            assert shards == sorted(shards)


TestOrder = OrderMachine.TestCase
