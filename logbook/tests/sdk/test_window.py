"""The window alone, and against a log that loses frames, refuses numbers and answers early."""

from __future__ import annotations

from copy import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki._arguments import Expectations, encode_tags
from boki._pending import Chunk, Ticket
from boki._window import FRAME_TARGET_BYTES, WINDOW_BYTES, Pending, Window
from boki.testing._engine import appends_of
from boki.testing._model import Answer, Append, Model, Outcome
from boki_common import limits
from boki_common.batch_builder import BatchBuilder
from boki_common.errors import BokiError, LogBookError, ProtocolError
from boki_common.record_batch import RUN_NAMED, RUN_RESENT, RecordBatch, Run

TAGS = encode_tags([])
CONFLICT = LogBookError("conflict")


def ticket(data: bytes = b"x", expect: Expectations | None = None) -> Ticket:
    return Ticket(TAGS, data) if expect is None else Ticket(TAGS, data, expect)


def chunk(count: int) -> Chunk:
    return Chunk([(TAGS, b"x")] * count, count)


def sent(window: Window) -> RecordBatch:
    """The next frame of a window; when it is a record alone, made in both ways."""
    twin = copy(window)
    alone = twin.alone(1, b"")
    builder = BatchBuilder()
    window.fill(builder, 1)
    frame = b"".join(builder.finish())
    if alone is not None:
        assert b"".join(alone) == frame
        assert all(getattr(twin, name) == getattr(window, name) for name in Window.__slots__)
    return RecordBatch.parse(memoryview(frame))


def run_of(window: Window) -> Run:
    (run,) = sent(window).runs
    return run


def filled(*items: Pending) -> Window:
    window = Window(b"w" * 16)
    for item in items:
        window.add(item)
    return window


def test_numbers_are_dense_from_one() -> None:
    items: list[Pending] = [ticket(), chunk(5), ticket()]
    window = filled(*items)
    assert [item.first for item in items] == [1, 2, 7]
    assert (window.undecided, window.free) == (7, limits.WINDOW_RECORDS - 7)
    run = run_of(window)
    assert (run.first, run.count, run.low, run.flags, run.writer, run.book) == (1, 7, 1, 0, b"w" * 16, 1)


def test_what_is_alone_is_one_plain_record_that_is_queued() -> None:
    window = filled(ticket())
    assert window.alone(1, b"") is not None
    assert window.alone(1, b"") is None, "nothing is queued"
    window.add(ticket())
    assert window.alone(1, b"token") is not None, "behind one that is on its way"
    window.connection_lost()
    assert window.alone(1, b"") is None, "two are queued"
    assert filled(chunk(1)).alone(1, b"") is None
    assert filled(ticket(expect=Expectations(((5, 0),), {5: "a"}))).alone(1, b"") is None
    named = Window(b"w" * 16, 1, RUN_NAMED)
    named.add(ticket())
    assert named.alone(1, b"") is None


def test_verdicts_free_the_window_in_order() -> None:
    first, second, third = ticket(), ticket(), ticket()
    window = filled(first, second, third)
    sent(window)
    window.committed(2, 2, 200)
    assert (first.decided, second.decided, third.decided) == (False, True, True)
    assert (window.low, window.undecided) == (1, 3)
    window.committed(1, 1, 100)
    assert (window.low, window.undecided, window.bytes) == (4, 0, 0)
    assert not window.in_flight


def test_windows_without_undecided_records_share_one_list() -> None:
    window, other = filled(ticket()), filled(ticket(), ticket())
    sent(window)
    sent(other)
    window.committed(1, 1, 100)
    other.committed(2, 1, 101)
    other.committed(1, 1, 100)
    assert window.items is other.items is Window(b"w" * 16).items
    window.add(ticket())
    assert (len(window.items), other.items) == (1, [])


def test_a_chunk_is_decided_in_parts() -> None:
    item = chunk(10)
    window = filled(item)
    sent(window)
    window.committed(1, 4, 50)
    window.committed(3, 4, 52)
    assert item.seqnums == [50, 51, 52, 53, 54, 55, 0, 0, 0, 0]
    window.failed(7, 1, CONFLICT, ordered=True)
    window.committed(8, 3, 90)
    assert item.seqnums == [50, 51, 52, 53, 54, 55, -1, 90, 91, 92]
    assert item.decided
    assert item.error is CONFLICT
    assert window.undecided == 0


def test_a_lost_connection_sends_again_in_order_and_says_so() -> None:
    items = [ticket(), ticket(), ticket()]
    window = filled(*items)
    sent(window)
    window.committed(1, 1, 7)
    late = ticket()
    window.add(late)
    window.connection_lost()
    run = run_of(window)
    assert (run.first, run.count, run.low, run.flags) == (2, 3, 2, RUN_RESENT)
    window.add(ticket())
    run = run_of(window)
    assert (run.first, run.count, run.low, run.flags) == (5, 1, 2, 0)


def test_frames_have_a_size() -> None:
    window = filled(*(ticket(bytes(100_000)) for _ in range(13)))
    counts = []
    while window.queued:
        batch = sent(window)
        assert batch.data_bytes < FRAME_TARGET_BYTES + 100_100
        counts.append(batch.record_count)
    assert counts == [6, 6, 1]


def test_the_window_counts_bytes_too() -> None:
    window = filled(*(ticket(bytes(limits.MIB - 2)) for _ in range(WINDOW_BYTES // limits.MIB - 1)))
    assert window.free
    window.add(ticket(bytes(limits.MIB - 2)))
    assert not window.free
    while window.queued:
        sent(window)
    window.committed(1, 1, 9)
    assert window.free


def test_what_was_never_sent_can_be_taken_back() -> None:
    first, second, third, many = ticket(), ticket(), ticket(), chunk(3)
    window = filled(first)
    sent(window)
    for item in (second, third, many):
        window.add(item)
    assert not window.withdraw(first)
    assert window.withdraw(second)
    assert not window.withdraw(second)
    assert (third.first, many.first, window.next_number) == (2, 3, 6)
    run = run_of(window)
    assert (run.first, run.count) == (2, 4)
    window.connection_lost()
    assert not window.withdraw(third)


def test_verdicts_of_numbers_that_were_never_sent() -> None:
    window = filled(ticket())
    for first, count in ((1, 1), (0, 1), (1, 2)):
        with pytest.raises(ProtocolError):
            window.committed(first, count, 5)
    sent(window)
    with pytest.raises(ProtocolError):
        window.failed(1, 2, CONFLICT, ordered=True)
    with pytest.raises(ProtocolError):
        window.gap(2)


def test_a_gap_sends_again_what_the_log_lacks() -> None:
    window = filled(ticket(), ticket(), ticket())
    sent(window)
    assert window.gap(0)
    run = run_of(window)
    assert (run.first, run.count, run.flags) == (1, 3, RUN_RESENT)


def test_a_gap_below_what_was_ordered_means_forgotten() -> None:
    window = filled(ticket(), ticket())
    sent(window)
    window.committed(1, 1, 5)
    assert not window.gap(0)
    assert window.gap(1)


def test_a_number_answered_early_and_lost_is_filled() -> None:
    loser, behind = ticket(), ticket()
    window = filled(loser)
    sent(window)
    window.failed(1, 1, CONFLICT, ordered=False)
    assert window.undecided == 0
    window.add(behind)
    sent(window)
    assert window.gap(0)
    batch = sent(window)
    (run,) = batch.runs
    assert (run.first, run.low, run.count, run.expectation_count) == (1, 1, 2, 1)
    assert batch.expectations == ([0], [0], [0])
    window.committed(2, 1, 77)
    assert behind.decided
    assert (window.undecided, window.bytes) == (0, 0)


def test_abandoning_tells_what_was_sent() -> None:
    one, other, third = ticket(), ticket(), ticket()
    window = filled(one, other)
    sent(window)
    window.add(third)
    window.committed(2, 1, 5)
    assert window.abandon() == [(one, True), (third, False)]
    assert window.undecided == 0


class LossyLog:
    """A model that may lose frames, answers and connections, and answer hopeless conditions early.

    `early`: a conflict that is certain when the record arrives is answered at once; the record itself may get lost. Only
    the first attempt of a number may be answered so: what makes the condition of a resent one fail may be its own first
    copy, which is ordered or still under way.
    """

    def __init__(self, window: Window) -> None:
        self.window = window
        self.model = Model()
        self.told: dict[int, int | str] = {}
        self.on_the_way: list[tuple[list[Append], bool]] = []
        self.answers: list[tuple[Append, Answer, bool]] = []

    def send(self, early: bool) -> None:
        if not self.window.queued:
            return
        batch = sent(self.window)
        items = appends_of(batch)
        if early and not batch.runs[0].flags & RUN_RESENT:
            for item in items:
                if any(self.model.newest(1, tag) > allowed for tag, allowed in item.expect) and item.low <= item.number:
                    self.answers.append((item, Answer(Outcome.CONFLICT), True))
        self.on_the_way.append((items, early))

    def order(self) -> None:
        if self.on_the_way:
            items, _ = self.on_the_way.pop(0)
            for item in items:
                self.answers.append((item, self.model.append(item, 0), False))

    def answer(self) -> None:
        if not self.answers:
            return
        item, answer, early = self.answers.pop(0)
        number, window = item.number, self.window
        if answer.outcome is Outcome.COMMITTED:
            window.committed(number, 1, answer.seqnum)
        elif answer.outcome is Outcome.CONFLICT:
            window.failed(number, 1, CONFLICT, ordered=False)
        elif answer.outcome is Outcome.GAP:
            assert window.gap(answer.seqnum), "a writer that is active is never forgotten"
        else:
            assert not early
            assert number < window.low, "an answer that is still awaited is never forgotten"

    def lose_frame(self) -> None:
        """An engine drops a shard: what was not ordered yet is gone, later frames come through."""
        if self.on_the_way:
            self.on_the_way.pop(0)

    def cut(self, keep: bool) -> None:
        """The connection ends; answers are lost, frames on their way may still be ordered later."""
        self.answers.clear()
        if not keep:
            self.on_the_way.clear()
        else:
            late, self.on_the_way = self.on_the_way, []
            for items, _ in late:
                for item in items:
                    self.model.append(item, 0)
        self.window.connection_lost()


STEPS = st.lists(
    st.sampled_from(
        ["append", "append", "expect none", "expect newest", "many", "send", "send early", "order", "order", "answer",
         "answer", "answer", "lose frame", "cut", "cut late"]
    ),
    max_size=120,
)  # fmt: skip


@given(STEPS)
def test_every_number_has_one_answer_which_is_the_logs(steps: list[str]) -> None:
    window = Window(b"w" * 16)
    log = LossyLog(window)
    items: list[Ticket | Chunk] = []
    for step in [*steps, "append", "cut"]:
        match step:
            case "append":
                items.append(ticket())
            case "expect none":
                items.append(ticket(expect=Expectations(((0, 0),), {})))
            case "expect newest":
                items.append(ticket(expect=Expectations(((0, log.model.newest(1, 0)),), {})))
            case "many":
                items.append(chunk(3))
            case "send" | "send early":
                log.send(step == "send early")
            case "order":
                log.order()
            case "answer":
                log.answer()
            case "lose frame":
                log.lose_frame()
            case _:
                log.cut(step == "cut late")
        if step in ("append", "expect none", "expect newest", "many"):
            window.add(items[-1])
    for _ in range(10 * len(items) + 10):
        log.send(False)
        log.order()
        while log.answers:
            log.answer()
        if window.undecided and not window.queued and not log.on_the_way:
            log.cut(False)
    assert all(item.decided for item in items)
    assert (window.undecided, window.bytes, len(window.in_flight), len(window.queued)) == (0, 0, 0, 0)
    check_answers(items, log.model)


def check_answers(items: list[Ticket | Chunk], model: Model) -> None:
    ordered = [record.seqnum for record in model.upwards(1, 0, 0, 2**63, 10_000)]
    told: list[int] = []
    for item in items:
        if isinstance(item, Chunk):
            told.extend(item.seqnums)
        elif not isinstance(item._outcome, BokiError):
            told.append(item._outcome or 0)
    assert told == ordered, "each committed record was told once, and nothing else is in the log"
