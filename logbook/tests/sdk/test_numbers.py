"""The numbers of a writer, and against a log that loses frames, refuses numbers and answers early. In every order:
`test_numbers_model.py`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki._arguments import Expectations, encode_tags
from boki._bounds import FRAME_TARGET_BYTES, WINDOW_BYTES, WRITER_IDLE_S
from boki._numbers import Numbers
from boki._outbox import Outbox
from boki._pending import Pending
from boki._session import Session
from boki._special import NOTHING, Special
from boki._ticket import Chunk, Ticket
from boki.testing._engine import appends_of
from boki.testing._model import Answer, Append, Model, Outcome
from boki_common import limits
from boki_common.errors import BokiError, LogBookError, ProtocolError
from boki_common.records.batch_builder import BatchBuilder
from boki_common.records.record_batch import RUN_NAMED, RUN_RESENT, RecordBatch, Run

TAGS = encode_tags([])
CONFLICT = LogBookError("conflict")


def ticket(data: bytes = b"x", expect: Expectations | None = None) -> Ticket:
    return Ticket(TAGS, data) if expect is None else Ticket(TAGS, data, expect)


def chunk(count: int) -> Chunk:
    return Chunk([(TAGS, b"x")] * count, count)


def give(numbers: Numbers, item: Pending) -> None:
    """The next numbers, of a writer that is born when there was none."""
    assert numbers.add(item, 0.0) or numbers.add(item, 0.0, b"w" * 16)


def sent(numbers: Numbers) -> RecordBatch:
    """The next frame."""
    builder = BatchBuilder()
    numbers.fill(builder)
    return RecordBatch.parse(memoryview(b"".join(builder.finish())))


def run_of(numbers: Numbers) -> Run:
    (run,) = sent(numbers).runs
    return run


def filled(*items: Pending) -> Numbers:
    numbers = Numbers(Session(), 1, Outbox())
    for item in items:
        give(numbers, item)
    return numbers


def test_numbers_are_dense_from_one() -> None:
    items: list[Pending] = [ticket(), chunk(5), ticket()]
    numbers = filled(*items)
    assert [item.first for item in items] == [1, 2, 7]
    assert (numbers.undecided, numbers.free) == (7, limits.WINDOW_RECORDS - 7)
    run = run_of(numbers)
    assert (run.first, run.count, run.low, run.flags, run.writer, run.book) == (1, 7, 1, 0, b"w" * 16, 1)


def test_a_writer_that_is_missing_or_was_idle_too_long_gives_no_number() -> None:
    numbers, item = Numbers(Session(), 1, Outbox()), ticket()
    assert not numbers.add(item, 0.0) and numbers.oldest is None
    assert numbers.add(item, 0.0, b"w" * 16) and item.first == 1
    sent(numbers)
    assert numbers.add(ticket(), 2 * WRITER_IDLE_S), "what is undecided keeps its writer"
    sent(numbers)
    numbers.committed(1, 2, 100)
    assert not numbers.add(ticket(), WRITER_IDLE_S + 1) and numbers.next_number == 3
    later = ticket()
    assert numbers.add(later, WRITER_IDLE_S + 1, b"v" * 16) and later.first == 1
    assert run_of(numbers).writer == b"v" * 16


def test_verdicts_free_the_window_in_order() -> None:
    first, second, third = ticket(), ticket(), ticket()
    numbers = filled(first, second, third)
    sent(numbers)
    numbers.committed(2, 2, 200)
    assert (first.decided, second.decided, third.decided) == (False, True, True)
    assert (numbers.low, numbers.undecided) == (1, 3)
    numbers.committed(1, 1, 100)
    assert (numbers.low, numbers.undecided, numbers.bytes) == (4, 0, 0)
    assert numbers.queued is None


def test_what_is_special_is_forgotten_with_the_last_number() -> None:
    numbers = filled(ticket(), ticket())
    assert numbers.special is NOTHING
    sent(numbers)
    numbers.connection_lost()
    assert numbers.special is not NOTHING
    sent(numbers)
    numbers.committed(1, 2, 100)
    assert (numbers.special, numbers.sent, numbers.ordered) == (NOTHING, 2, 2)


def test_a_chunk_is_decided_in_parts() -> None:
    item = chunk(10)
    numbers = filled(item)
    sent(numbers)
    numbers.committed(1, 4, 50)
    numbers.committed(3, 4, 52)
    assert item.seqnums == [50, 51, 52, 53, 54, 55, 0, 0, 0, 0]
    numbers.failed(7, 1, CONFLICT, ordered=True)
    numbers.committed(8, 3, 90)
    assert item.seqnums == [50, 51, 52, 53, 54, 55, -1, 90, 91, 92]
    assert item.decided
    assert item.error is CONFLICT
    assert numbers.undecided == 0


def test_frames_have_a_size() -> None:
    numbers = filled(*(ticket(bytes(100_000)) for _ in range(13)))
    counts = []
    while numbers.queued:
        batch = sent(numbers)
        assert batch.data_bytes < FRAME_TARGET_BYTES + 100_100
        counts.append(batch.record_count)
    assert counts == [6, 6, 1]


def test_the_window_counts_bytes_too() -> None:
    numbers = filled(*(ticket(bytes(limits.MIB - 2)) for _ in range(WINDOW_BYTES // limits.MIB - 1)))
    assert numbers.free
    give(numbers, ticket(bytes(limits.MIB - 2)))
    assert not numbers.free
    while numbers.queued:
        sent(numbers)
    numbers.committed(1, 1, 9)
    assert numbers.free


def test_what_was_never_sent_can_be_taken_back() -> None:
    first, second, third, many = ticket(), ticket(), ticket(), chunk(3)
    numbers = filled(first)
    sent(numbers)
    for item in (second, third, many):
        give(numbers, item)
    assert not numbers.withdraw(first)
    assert numbers.withdraw(second)
    assert not numbers.withdraw(second)
    assert (third.first, many.first, numbers.next_number) == (2, 3, 6)
    run = run_of(numbers)
    assert (run.first, run.count) == (2, 4)
    numbers.connection_lost()
    assert not numbers.withdraw(third)


def test_of_a_named_writer_only_the_newest_can_be_taken_back() -> None:
    first, second = ticket(), chunk(2)
    view = Numbers(Session(), 1, Outbox())
    numbers = Numbers(view.session, 1, view.outbox, b"n" * 16, special=Special(RUN_NAMED, view))
    for item in (first, second):
        give(numbers, item)
    assert not numbers.withdraw(first)
    assert (first.first, second.first) == (1, 2)
    assert numbers.withdraw(second)
    assert numbers.withdraw(first)


def test_verdicts_of_numbers_that_were_never_sent() -> None:
    numbers = filled(ticket())
    for first, count in ((1, 1), (0, 1), (1, 2)):
        with pytest.raises(ProtocolError):
            numbers.committed(first, count, 5)
    sent(numbers)
    with pytest.raises(ProtocolError):
        numbers.failed(1, 2, CONFLICT, ordered=True)
    with pytest.raises(ProtocolError):
        numbers.gap(2)


class LossyLog:
    """A model that may lose frames, answers and connections, and answer hopeless conditions early.

    `early`: a conflict that is certain when the record arrives is answered at once; the record itself may get lost. Only
    the first attempt of a number may be answered so: what makes the condition of a resent one fail may be its own first
    copy, which is ordered or still under way.
    """

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers
        self.model = Model()
        self.outcomes: dict[int, int | str] = {}
        self.on_the_way: list[tuple[list[Append], bool]] = []
        self.answers: list[tuple[Append, Answer, bool]] = []

    def send(self, early: bool) -> None:
        if not self.numbers.queued:
            return
        batch = sent(self.numbers)
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
        number, numbers = item.number, self.numbers
        if answer.outcome is Outcome.COMMITTED:
            numbers.committed(number, 1, answer.seqnum)
        elif answer.outcome is Outcome.CONFLICT:
            numbers.failed(number, 1, CONFLICT, ordered=False)
        elif answer.outcome is Outcome.GAP:
            assert numbers.gap(answer.seqnum), "a writer that is active is never forgotten"
        else:
            assert not early
            assert number < numbers.low, "an answer that is still awaited is never forgotten"

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
        self.numbers.connection_lost()


STEPS = st.lists(
    st.sampled_from(
        ["append", "append", "expect none", "expect newest", "many", "send", "send early", "order", "order", "answer",
         "answer", "answer", "lose frame", "cut", "cut late"]
    ),
    max_size=120,
)  # fmt: skip


@given(STEPS)
def test_every_number_has_one_answer_which_is_the_logs(steps: list[str]) -> None:
    numbers = Numbers(Session(), 1, Outbox())
    log = LossyLog(numbers)
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
            give(numbers, items[-1])
    for _ in range(10 * len(items) + 10):
        log.send(False)
        log.order()
        while log.answers:
            log.answer()
        if numbers.undecided and not numbers.queued and not log.on_the_way:
            log.cut(False)
    assert all(item.decided for item in items)
    assert (numbers.undecided, numbers.bytes, numbers.oldest, numbers.queued) == (0, 0, None, None)
    check_answers(items, log.model)


def check_answers(items: list[Ticket | Chunk], model: Model) -> None:
    ordered = [record.seqnum for record in model.upwards(1, 0, 0, 2**63, 10_000)]
    outcomes: list[int] = []
    for item in items:
        if isinstance(item, Chunk):
            outcomes.extend(item.seqnums)
        elif not isinstance(item._outcome, BokiError):
            outcomes.append(item._outcome or 0)
    assert outcomes == ordered, "each committed record was told once, and nothing else is in the log"
