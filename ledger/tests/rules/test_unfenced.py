"""Who asks whether a ledger is fenced, what is counted, and when he is answered: on counts alone, without a network."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common import limits
from boki_common.testing.virtual_time import let_pass
from boki_ledger.rules.unfenced import UNPROVEN_S, Mark, UnfencedChecks
from boki_ledger.testing.ledgers import turns

pytestmark = pytest.mark.usefixtures("unhurried")


class Counters:
    """A replica that is only its counters."""

    def __init__(self, sent: int = 0, answered: int = 0) -> None:
        self.connection = 1
        self.sent = sent
        self.answered = answered

    def reconnect(self) -> None:
        self.connection += 1
        self.sent = self.answered = 0


class Asked:
    """Checks on replicas, who asked, and what they were answered."""

    def __init__(self, count: int = 3, ack_quorum: int = 2) -> None:
        self.replicas = [Counters() for _ in range(count)]
        self.can_ask = True
        self.repeats = 0
        self.answers: list[tuple[str, bool]] = []
        self.checks = UnfencedChecks(ack_quorum, self.ask_again)

    def ask_again(self) -> Sequence[Mark] | None:
        if not self.can_ask:
            return None
        self.repeats += 1
        marks = [Mark(replica, replica.connection, replica.sent) for replica in self.replicas]
        for replica in self.replicas:
            replica.sent += 1
        return marks

    def ask(self, name: str) -> bool:
        return self.checks.ask(lambda proven: self.answers.append((name, proven)))

    def ask_all(self, count: int) -> None:
        """Questions that are named by their number."""
        for number in range(count):
            assert self.ask(f"{number}")

    def answer(self, *replicas: int, count: int = 1) -> None:
        for index in replicas:
            self.replicas[index].answered += count
        if self.checks.open:
            self.checks.answered()


@pytest.fixture
async def asked() -> Asked:
    return Asked()


async def test_a_quorum_of_answers_proves_it_and_each_question_is_answered_once(asked: Asked) -> None:
    assert asked.ask("a") and asked.checks.open
    asked.answer(0)
    assert asked.answers == []
    asked.answer(2)
    assert asked.answers == [("a", True)] and not asked.checks.open
    asked.answer(1)
    assert asked.answers == [("a", True)]


@pytest.mark.parametrize(("count", "ack_quorum"), [(1, 1), (2, 1), (3, 1), (3, 2), (3, 3), (5, 3)])
async def test_one_answer_less_than_the_quorum_proves_nothing(count: int, ack_quorum: int) -> None:
    asked = Asked(count, ack_quorum)
    asked.ask("a")
    for index in range(ack_quorum - 1):
        asked.answer(index, count=10)
    assert asked.answers == [], "one bookie counts once, however much it answers"
    asked.answer(ack_quorum - 1)
    assert asked.answers == [("a", True)]


async def test_answers_to_what_was_sent_before_never_suffice(asked: Asked) -> None:
    for replica, (sent, answered) in zip(asked.replicas, [(5, 2), (5, 5), (0, 0)], strict=True):
        replica.sent, replica.answered = sent, answered
    asked.ask("a")
    asked.answer(0, count=3)
    assert asked.answers == [], "all five that were sent before"
    asked.answer(1)
    assert asked.answers == []
    asked.answer(0)
    assert asked.answers == [("a", True)], "the sixth"


@given(
    before=st.lists(st.integers(0, 4), min_size=3, max_size=3),
    after=st.lists(st.integers(0, 3), min_size=3, max_size=3),
    order=st.randoms(use_true_random=False),
)
def test_in_whatever_order_answers_come_what_is_proven_was_answered(
    before: list[int], after: list[int], order: random.Random
) -> None:
    """The model knows which add each answer is for; the checks only count. Whenever they tell True, the model agrees."""

    async def main() -> None:
        asked = Asked()
        for replica, count in zip(asked.replicas, before, strict=True):
            replica.sent = count
        asked.ask("a")
        answers = [
            (index, late) for index in range(3) for late in [False] * before[index] + [True] * (1 + after[index])
        ]
        order.shuffle(answers)
        proving: set[int] = set()
        for index, late in answers:
            if late:
                proving.add(index)
            was_full = bool(asked.answers)
            asked.answer(index)
            if asked.answers and not was_full:
                assert len(proving) >= 2, "a quorum answered what was sent after the question"
        assert asked.answers == [("a", True)], "when all is answered it is proven"

    asyncio.run(main())


async def test_another_connection_proves_nothing_about_the_last(asked: Asked) -> None:
    asked.ask("a")
    asked.answer(0)
    asked.replicas[1].reconnect()
    asked.answer(1, count=7)
    assert asked.answers == []
    asked.replicas[0].reconnect()
    asked.answer(0, count=7)
    asked.answer(2)
    assert asked.answers == [], "what the first had answered went with its connection"


async def test_a_later_proof_answers_all_that_asked_before(asked: Asked) -> None:
    for name in "abc":
        asked.ask(name)
    asked.replicas[0].answered = 2
    asked.answer(2, count=2)
    assert asked.answers == [("a", True), ("b", True)] and asked.checks.open
    asked.answer(0, 2)
    assert asked.answers == [("a", True), ("b", True), ("c", True)] and not asked.checks.open


async def test_a_proof_of_a_later_question_serves_one_that_lost_its_connection(asked: Asked) -> None:
    asked.ask("first")
    asked.replicas[0].reconnect()
    asked.replicas[1].reconnect()
    asked.ask("second")
    asked.answer(0, 1)
    assert asked.answers == [("first", True), ("second", True)]


async def test_questions_in_flight_are_bounded_and_who_asks_meanwhile_shares_the_next(asked: Asked) -> None:
    asked.ask_all(limits.LEDGER_FENCE_CHECKS)
    assert asked.repeats == limits.LEDGER_FENCE_CHECKS
    assert asked.ask("x") and asked.ask("y") and asked.ask("z")
    asked.answer(0)
    assert asked.repeats == limits.LEDGER_FENCE_CHECKS, "they wait"
    asked.answer(1)
    assert asked.answers == [("0", True)]
    assert asked.repeats == limits.LEDGER_FENCE_CHECKS + 1, (
        "one question for all three, that left after all of them asked"
    )
    assert asked.ask("w")
    assert asked.repeats == limits.LEDGER_FENCE_CHECKS + 1, "as many as may be are in flight again"
    asked.answer(0, 1, count=limits.LEDGER_FENCE_CHECKS - 1)
    assert [name for name, _ in asked.answers] == ["0", "1", "2", "3"]
    assert asked.repeats == limits.LEDGER_FENCE_CHECKS + 2
    asked.answer(0, 1)
    assert asked.answers[limits.LEDGER_FENCE_CHECKS :] == [("x", True), ("y", True), ("z", True)]
    assert asked.checks.open, "w is not answered by what left before it asked"
    asked.answer(0, 1)
    assert asked.answers[limits.LEDGER_FENCE_CHECKS + 3 :] == [("w", True)]
    assert not asked.checks.open and {proven for _, proven in asked.answers} == {True}


async def test_who_waits_is_not_proven_by_answers_to_questions_that_left_before_he_asked(asked: Asked) -> None:
    asked.ask_all(limits.LEDGER_FENCE_CHECKS)
    asked.ask("late")
    asked.answer(0, 1, 2, count=limits.LEDGER_FENCE_CHECKS)
    assert ("late", True) not in asked.answers and len(asked.answers) == limits.LEDGER_FENCE_CHECKS
    asked.answer(0, 1)
    assert asked.answers[-1] == ("late", True)


async def test_who_waits_is_answered_false_when_nothing_can_be_sent_any_more(asked: Asked) -> None:
    asked.ask_all(limits.LEDGER_FENCE_CHECKS)
    asked.ask("x")
    asked.ask("y")
    asked.can_ask = False
    asked.answer(0, 1)
    assert asked.answers == [("0", True), ("x", False), ("y", False)]
    asked.answer(0, 1, count=limits.LEDGER_FENCE_CHECKS - 1)
    assert len(asked.answers) == limits.LEDGER_FENCE_CHECKS + 2 and not asked.checks.open
    assert len({name for name, _ in asked.answers}) == limits.LEDGER_FENCE_CHECKS + 2, "each once"


async def test_a_question_that_cannot_be_asked_is_not_answered(asked: Asked) -> None:
    asked.can_ask = False
    assert not asked.ask("a")
    assert not asked.checks.open
    asked.checks.interrupted()
    await turns()
    assert asked.answers == []


async def test_an_interruption_answers_all_as_unproven_in_the_next_turn(asked: Asked) -> None:
    asked.ask_all(limits.LEDGER_FENCE_CHECKS + 2)
    asked.checks.interrupted()
    assert asked.answers == [], "who interrupts is in the midst of something"
    await turns(2)
    assert asked.answers == [(f"{number}", False) for number in range(limits.LEDGER_FENCE_CHECKS + 2)]
    asked.answer(0, 1, 2, count=limits.LEDGER_FENCE_CHECKS)
    await turns()
    assert len(asked.answers) == limits.LEDGER_FENCE_CHECKS + 2 and not asked.checks.open
    assert asked.ask("again")
    asked.answer(0, 1)
    assert asked.answers[-1] == ("again", True)


async def test_what_is_proven_before_the_turn_of_an_interruption_stays_proven(asked: Asked) -> None:
    asked.ask("a")
    asked.ask("b")
    asked.checks.interrupted()
    asked.answer(0, 1)
    await turns()
    assert asked.answers == [("a", True), ("b", False)]


async def test_an_interruption_of_nobody_does_not_disturb_who_asks_next(asked: Asked) -> None:
    asked.checks.interrupted()
    asked.ask("a")
    await turns()
    assert asked.answers == [] and asked.checks.open


@pytest.mark.usefixtures("virtual_time")
async def test_what_stays_unanswered_is_unproven_after_its_time_and_not_before(asked: Asked) -> None:
    asked.ask("a")
    asked.answer(0)
    await let_pass(UNPROVEN_S * 0.9)
    assert asked.answers == []
    await let_pass(UNPROVEN_S * 0.2)
    assert asked.answers == [("a", False)] and not asked.checks.open
    asked.answer(1)
    assert asked.answers == [("a", False)]


@pytest.mark.usefixtures("virtual_time")
async def test_each_first_question_has_its_whole_time(asked: Asked) -> None:
    """The first one was proven: the time of the second counts from when that one was asked."""
    asked.ask("a")
    await let_pass(UNPROVEN_S * 0.6)
    asked.ask("b")
    asked.answer(0, 1)
    await let_pass(UNPROVEN_S * 0.9)
    assert asked.answers == [("a", True)] and asked.checks.open
    await let_pass(UNPROVEN_S * 0.2)
    assert asked.answers == [("a", True), ("b", False)]


@pytest.mark.usefixtures("virtual_time")
async def test_the_oldest_question_decides_when_all_are_answered(asked: Asked) -> None:
    asked.ask("a")
    await let_pass(UNPROVEN_S * 0.6)
    asked.ask("b")
    await let_pass(UNPROVEN_S * 0.5)
    assert asked.answers == [("a", False), ("b", False)]


@pytest.mark.usefixtures("virtual_time")
async def test_a_question_after_a_pause_has_its_whole_time_too(asked: Asked) -> None:
    for name in "ab":
        asked.ask(name)
        asked.answer(0, 1)
        await let_pass(UNPROVEN_S * 5)
    asked.ask("c")
    await let_pass(UNPROVEN_S * 0.9)
    assert asked.checks.open
    await let_pass(UNPROVEN_S * 0.2)
    assert asked.answers == [("a", True), ("b", True), ("c", False)]


@pytest.mark.usefixtures("virtual_time")
async def test_the_limit_answers_those_whose_question_was_not_sent_too(asked: Asked) -> None:
    asked.ask_all(limits.LEDGER_FENCE_CHECKS + 2)
    await let_pass(UNPROVEN_S * 1.1)
    assert asked.answers == [(f"{number}", False) for number in range(limits.LEDGER_FENCE_CHECKS + 2)]
    assert asked.repeats == limits.LEDGER_FENCE_CHECKS


@pytest.mark.usefixtures("virtual_time")
async def test_nobody_is_answered_after_the_end(asked: Asked) -> None:
    asked.ask_all(limits.LEDGER_FENCE_CHECKS + 2)
    asked.checks.interrupted()
    asked.checks.close()
    assert not asked.checks.open
    await let_pass(UNPROVEN_S * 3)
    assert asked.answers == []
    asked.checks.close()


async def test_the_end_leaves_no_timer_behind(asked: Asked) -> None:
    asked.ask("a")
    timer = asked.checks._timer
    assert timer is not None
    asked.ask("b")
    assert asked.checks._timer is timer, "one for all"
    asked.checks.close()
    assert timer.cancelled()
    Asked().checks.close()


async def test_who_is_answered_may_ask_again_at_once(asked: Asked) -> None:
    answers: list[bool] = []

    def on_answer(proven: bool) -> None:
        answers.append(proven)
        if len(answers) < 4:
            assert asked.checks.ask(on_answer)

    asked.checks.ask(on_answer)
    for _ in range(2):
        asked.answer(0, 1)
    asked.checks.interrupted()
    await turns()
    asked.answer(0, 1)
    assert answers == [True, True, False], "that was the answer to what was interrupted"
    asked.answer(0, 1)
    assert answers == [True, True, False, True]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.usefixtures("virtual_time")
async def test_each_question_is_answered_exactly_once_whatever_happens(seed: int) -> None:
    """Questions, answers, lost connections, interruptions and time, in any order; all are answered at the latest by the limit."""
    draw, asked, names = random.Random(seed), Asked(), itertools.count()
    expected: list[str] = []
    for _ in range(300):
        asked.can_ask = draw.random() < 0.95
        match draw.choices(["ask", "answer", "reconnect", "interrupt", "time"], [8, 20, 1, 1, 2])[0]:
            case "ask":
                name = f"{next(names)}"
                expected += [name] if asked.ask(name) else []
            case "answer":
                index = draw.randrange(3)
                if asked.replicas[index].answered < asked.replicas[index].sent:
                    asked.answer(index)
            case "reconnect":
                draw.choice(asked.replicas).reconnect()
            case "interrupt":
                asked.checks.interrupted()
            case "time":
                await let_pass(draw.choice([0.0, 0.01, 0.05]))
    await let_pass(UNPROVEN_S * 2.1)
    assert sorted(name for name, _ in asked.answers) == sorted(expected)
    assert not asked.checks.open and {proven for _, proven in asked.answers} == {True, False}
