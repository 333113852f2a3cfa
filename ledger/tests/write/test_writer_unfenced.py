"""A writer asks its bookies whether anybody fenced the ledger: what they are sent, and what counts."""

from __future__ import annotations

import pytest
from tests.write.questions import Question, ask, first_entry, pass_on, recovered, sent
from tests.writers import RecordedAcks

from boki_common import limits
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import LedgerFenced
from boki_common.testing.virtual_time import let_pass
from boki_ledger.rules.unfenced import UNPROVEN_S
from boki_ledger.rules.write_set import write_set
from boki_ledger.testing.ledgers import Ledgers, deliver, submit, turns, until
from boki_ledger.write.writer import LedgerWriter

pytestmark = pytest.mark.usefixtures("unhurried")


@pytest.fixture
async def writer(ledgers: Ledgers) -> LedgerWriter:
    return await first_entry(ledgers)


# -- what is proven, and what it costs


async def test_it_is_proven_by_two_of_three_answers(ledgers: Ledgers, writer: LedgerWriter) -> None:
    held = {name: ledgers.bookies.hold(bookie=name, kind="add", answer=True) for name in ("b1", "b2", "b3")}
    question = Question(writer)
    assert question.taken
    await turns()
    await deliver(held["b3"])
    assert question.replies == []
    held["b1"].release()
    assert question.replies == [True]
    await deliver(held["b2"])
    assert question.replies == [True]


async def test_nothing_is_stored_and_no_number_is_used(ledgers: Ledgers, writer: LedgerWriter) -> None:
    replies = RecordedAcks(writer)
    stored = {name: dict(one.entries[writer.ledger_id]) for name, one in ledgers.bookies.bookies.items() if one.entries}
    questions = [Question(writer) for _ in range(3)]
    await turns()
    assert [one.replies for one in questions] == [[True]] * 3
    assert sent(ledgers) == {("b1", 0): 3, ("b2", 0): 3, ("b3", 0): 3}
    assert {name: ledgers.bookies[name].entries[writer.ledger_id] for name in stored} == stored
    assert (writer.last_submitted, writer.last_acked, replies.acked) == (0, 0, [])
    assert await writer.append(b"1") == 1
    assert await writer.close() == 1
    assert (await ledgers.metadata(writer.ledger_id)).length == 2


async def test_the_last_acknowledged_entry_is_what_is_sent_again(ledgers: Ledgers, writer: LedgerWriter) -> None:
    held = ledgers.bookies.hold(kind="add", entry_id=2, answer=True)
    await submit(writer, *(b"%d" % number for number in range(1, 3)))
    assert writer.last_acked == 1
    ledgers.bookies.seen.clear()
    question = await ask(writer)
    assert sent(ledgers) == {("b1", 1): 1, ("b2", 1): 1, ("b3", 1): 1}
    assert question.replies == [], "that of entry 2 may be what was answered, as far as counts tell"
    await deliver(held)
    assert question.replies == [True] and writer.last_acked == 2


async def test_who_asks_while_many_questions_are_in_flight_shares_the_next(ledgers: Ledgers) -> None:
    writer = await first_entry(ledgers)
    questions = [Question(writer) for _ in range(3 * limits.LEDGER_FENCE_CHECKS)]
    assert all(one.taken for one in questions)
    await turns()
    assert [one.replies for one in questions] == [[True]] * 3 * limits.LEDGER_FENCE_CHECKS
    assert set(sent(ledgers).values()) == {limits.LEDGER_FENCE_CHECKS + 1}


@pytest.mark.parametrize("crashed", ["b1", "b2", "b3"])
async def test_two_bookies_are_enough_and_one_is_not_asked(ledgers: Ledgers, crashed: str) -> None:
    writer = await first_entry(ledgers)
    ledgers.bookies.crash(crashed)
    await turns()
    question = await ask(writer)
    assert question.taken and question.replies == [True]
    ledgers.bookies.crash("b2" if crashed != "b2" else "b3")
    await turns()
    ledgers.bookies.seen.clear()
    refused = await ask(writer)
    assert (refused.taken, refused.replies, sent(ledgers)) == (False, [], {})


async def test_a_bookie_that_lacks_the_last_entry_gets_it_so(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    ledgers.bookies.crash("b3")
    await writer.append(b"0")
    ledgers.bookies.restart("b3")
    await turns()
    assert ledgers.bookies.stored("b3", writer.ledger_id) == []
    question = await ask(writer)
    assert question.replies == [True]
    assert ledgers.bookies.stored("b3", writer.ledger_id) == [0]
    assert await recovered(ledgers, writer) == 0


# -- what counts


async def test_late_acknowledgements_of_what_was_sent_before_do_not_count(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    late = ledgers.bookies.hold(bookie="b3", kind="add", answer=True)
    await writer.append(b"0")
    await turns()
    unanswered = ledgers.bookies.hold(bookie="b2", kind="add")
    question = await ask(writer)
    assert question.replies == [], "b1 answered"
    assert len(late) == 2
    pass_on(late)
    assert question.replies == [], "b3 answered what it was sent before the question"
    pass_on(late)
    assert question.replies == [True]
    unanswered.release()


async def test_acknowledgements_of_all_entries_sent_before_are_no_proof_in_any_order(ledgers: Ledgers) -> None:
    writer = await first_entry(ledgers)
    answers = ledgers.bookies.hold(kind="add", answer=True)
    await submit(writer, *(b"%d" % number for number in range(1, 4)))
    question = await ask(writer)
    for entry_id in (0, 3, 1):
        for _ in range(3):
            pass_on(answers, entry_id=entry_id)
    assert question.replies == [], "three answers of each, and three adds were sent to each before"
    assert writer.last_acked == 1
    pass_on(answers)
    assert question.replies == []
    pass_on(answers)
    assert question.replies == [True] and writer.last_acked == 3


async def test_entries_sent_after_the_question_prove_it_as_the_repeat_does(ledgers: Ledgers) -> None:
    writer = await first_entry(ledgers)
    repeats = ledgers.bookies.hold(kind="add", entry_id=0)
    question = await ask(writer)
    assert question.replies == [] and len(repeats) == 3
    assert await writer.append(b"1") == 1
    assert question.replies == [True]
    await deliver(repeats)
    assert question.replies == [True]


async def test_entries_that_were_not_sent_yet_when_it_was_asked_prove_it_too(ledgers: Ledgers) -> None:
    writer = await first_entry(ledgers)
    repeats = ledgers.bookies.hold(kind="add", entry_id=0)
    writer.submit(b"1")
    writer.submit(b"2")
    question = await ask(writer)
    assert question.replies == [True] and len(repeats) == 3
    assert writer.last_acked == 2


async def test_entries_in_flight_complete_as_before(ledgers: Ledgers, writer: LedgerWriter) -> None:
    replies = RecordedAcks(writer)
    held = ledgers.bookies.hold(kind="add")
    questions = []
    for number in range(1, 6):
        writer.submit(b"%d" % number)
        questions.append(Question(writer))
        await turns()
    assert replies.acked == [] and not any(one.replies for one in questions)
    held.release(reverse=True)
    await turns()
    assert writer.last_acked == replies.acked[-1] == 5
    assert replies.acked == sorted(set(replies.acked))
    assert [one.replies for one in questions] == [[True]] * 5
    assert {count for (_, entry_id), count in sent(ledgers).items() if entry_id > 0} == {1}
    assert await writer.close() == 5


async def test_who_asks_when_an_entry_is_acknowledged_does_not_count_that_answer(ledgers: Ledgers) -> None:
    writer = await first_entry(ledgers)
    questions: list[Question] = []
    writer.listen(lambda _: questions.append(Question(writer)), lambda _: None)
    answers = ledgers.bookies.hold(kind="add", answer=True)
    await submit(writer, b"1")
    pass_on(answers)
    pass_on(answers)
    [question] = questions
    pass_on(answers)
    assert question.taken and question.replies == [], "all three answered what was sent before"
    await turns()
    pass_on(answers)
    assert question.replies == []
    pass_on(answers)
    assert question.replies == [True]


async def test_runs_of_acknowledgements_count_each_entry(ledgers: Ledgers) -> None:
    writer = await ledgers.striped(3, 3, 2)
    held = ledgers.bookies.hold(kind="add")
    slots = writer._adds._slots
    await submit(writer, b"0", b"1")
    for slot in slots[:2]:
        slot.adds_answered([(0, 2)], [])
    question = Question(writer)
    assert writer.last_acked == 1 and question.taken
    slots[2].adds_answered([(0, 2)], [])
    slots[0].adds_answered([(1, 1)], [])
    assert question.replies == []
    slots[1].adds_answered([(1, 1)], [])
    assert question.replies == [True]
    held.discard()


async def test_what_was_sent_again_before_the_question_does_not_count(ledgers: Ledgers, writer: LedgerWriter) -> None:
    answers = ledgers.bookies.hold(kind="add", answer=True)
    await submit(writer, b"1")
    answers.discard()
    for name in ("b1", "b2"):
        ledgers.bookies.reconnect(name)
    await turns()
    question = await ask(writer)
    assert [(one.bookie, one.entry_id) for one, _ in answers.kept] == [
        *(("b1", 1), ("b2", 1)),
        *(("b1", 0), ("b2", 0), ("b3", 0)),
    ]
    pass_on(answers)
    pass_on(answers)
    assert writer.last_acked == 1 and question.replies == []
    pass_on(answers)
    assert question.replies == []
    pass_on(answers)
    assert question.replies == [True]


@pytest.mark.parametrize("when", ["asked", "answered by one"])
async def test_a_bookie_that_reconnects_in_between_leaves_it_unproven(ledgers: Ledgers, when: str) -> None:
    writer = await first_entry(ledgers)
    answers = ledgers.bookies.hold(kind="add", answer=True)
    question, waiting = Question(writer), [Question(writer) for _ in range(limits.LEDGER_FENCE_CHECKS)]
    await turns()
    if when != "asked":
        next(go for one, go in answers.kept if one.bookie == "b2")()
    ledgers.bookies.reconnect("b1")
    assert question.replies == []
    await turns()
    assert question.replies == [False] and [one.replies for one in waiting] == [[False]] * limits.LEDGER_FENCE_CHECKS
    await deliver(answers)
    assert question.replies == [False]
    again = await ask(writer)
    assert again.replies == [True]


async def test_what_a_bookie_answered_on_an_earlier_connection_does_not_count(ledgers: Ledgers) -> None:
    writer = await first_entry(ledgers)
    ledgers.bookies.reconnect("b1")
    held = [ledgers.bookies.hold(bookie=name, kind="add") for name in ("b1", "b3")]
    question = await ask(writer)
    assert question.taken and question.replies == [], "b2 alone has answered"
    await deliver(held[0])
    assert question.replies == [True]


async def test_answers_on_a_new_connection_do_not_count_even_before_it_is_reported(
    ledgers: Ledgers, writer: LedgerWriter
) -> None:
    held = ledgers.bookies.hold(kind="add")
    question = Question(writer)
    first, second, _ = writer._adds._slots
    first.channel_up()
    first.adds_answered([(0, 1)], [])
    first.adds_answered([(0, 1)], [])
    second.adds_answered([(0, 1)], [])
    assert question.replies == []
    await turns()
    assert question.replies == [False]
    held.discard()


async def test_answers_that_were_lost_with_a_connection_do_not_spoil_the_next(ledgers: Ledgers) -> None:
    writer = await first_entry(ledgers)
    lost = ledgers.bookies.hold(bookie="b1", kind="add", answer=True)
    await writer.append(b"1")
    await turns()
    lost.discard()
    lost.active = False
    ledgers.bookies.reconnect("b1")
    ledgers.bookies.crash("b3")
    await turns()
    question = await ask(writer)
    assert question.replies == [True]


async def test_a_bookie_that_refuses_the_repeat_leaves_it_unproven_and_is_tried_again(ledgers: Ledgers) -> None:
    writer = await first_entry(ledgers)
    ended = ledgers.bookies.answer(V2Status.IO_ERROR, bookie="b1", kind="add")
    held = ledgers.bookies.hold(bookie="b2", kind="add", answer=True)
    question = await ask(writer)
    assert question.replies == [False]
    held.release()
    ended()
    await until(lambda: not writer.failing_bookies)
    again = await ask(writer)
    assert again.replies == [True] and writer.failed is None


@pytest.mark.usefixtures("virtual_time")
async def test_bookies_that_do_not_answer_leave_it_unproven_after_a_tenth_of_a_second(ledgers: Ledgers) -> None:
    writer = await first_entry(ledgers)
    held = [ledgers.bookies.hold(bookie=name, kind="add") for name in ("b1", "b2")]
    questions = [Question(writer) for _ in range(limits.LEDGER_FENCE_CHECKS + 1)]
    await let_pass(UNPROVEN_S * 0.9)
    assert not any(one.replies for one in questions)
    await let_pass(UNPROVEN_S * 0.2)
    assert [one.replies for one in questions] == [[False]] * (limits.LEDGER_FENCE_CHECKS + 1)
    for one in held:
        one.release()
    await let_pass(UNPROVEN_S)
    assert [one.replies for one in questions] == [[False]] * (limits.LEDGER_FENCE_CHECKS + 1)
    again = await ask(writer)
    assert again.replies == [True]


# -- a ledger that is fenced


async def test_a_ledger_that_another_client_recovered_fails_the_writer(ledgers: Ledgers, writer: LedgerWriter) -> None:
    replies = RecordedAcks(writer)
    assert await recovered(ledgers, writer) == 0
    question, more = Question(writer), [Question(writer) for _ in range(limits.LEDGER_FENCE_CHECKS)]
    assert question.taken
    await turns()
    assert isinstance(writer.failed, LedgerFenced) and len(replies.failed) == 1
    assert [one.replies for one in (question, *more)] == [[]] * (limits.LEDGER_FENCE_CHECKS + 1)
    last = await ask(writer)
    assert (last.taken, last.replies) == (False, [])


@pytest.mark.parametrize("unfenced", ["b1", "b2", "b3"])
async def test_one_bookie_that_nobody_fenced_is_no_proof(ledgers: Ledgers, writer: LedgerWriter, unfenced: str) -> None:
    """The fence of a third bookie is late: a recovery needs two of three."""
    late = ledgers.bookies.hold(bookie=unfenced, kind="read", fence=True)
    assert await recovered(ledgers, writer) == 0
    assert not ledgers.bookies[unfenced].fenced.get(writer.ledger_id)
    refusals = [
        ledgers.bookies.hold(bookie=name, kind="add", answer=True) for name in ("b1", "b2", "b3") if name != unfenced
    ]
    question = await ask(writer)
    assert writer.failed is None and question.replies == []
    await deliver(*refusals)
    assert isinstance(writer.failed, LedgerFenced) and question.replies == []
    late.release()


async def test_acknowledgements_from_before_the_fence_prove_nothing_after_it(ledgers: Ledgers) -> None:
    writer = await first_entry(ledgers)
    answers = ledgers.bookies.hold(kind="add", recovery=False, answer=True)
    await submit(writer, b"1", b"2")
    assert await recovered(ledgers, writer) == 2
    question = await ask(writer)
    acknowledged = [go for one, go in answers.kept if one.entry_id > 0]
    refused = [go for one, go in answers.kept if one.entry_id == 0]
    for go in acknowledged:
        go()
    assert writer.last_acked == 2, "they are in the ledger"
    assert question.replies == []
    for go in refused:
        go()
    assert isinstance(writer.failed, LedgerFenced) and question.replies == []


async def test_a_repeat_that_arrives_after_the_fence_is_refused(ledgers: Ledgers, writer: LedgerWriter) -> None:
    under_way = ledgers.bookies.hold(kind="add", recovery=False)
    question = await ask(writer)
    await recovered(ledgers, writer)
    await deliver(under_way)
    assert question.replies == [] and isinstance(writer.failed, LedgerFenced)


async def test_a_repeat_that_arrived_before_the_fence_proves_it_though_its_answer_is_late(ledgers: Ledgers) -> None:
    writer = await first_entry(ledgers)
    answers = ledgers.bookies.hold(kind="add", recovery=False, answer=True)
    question = await ask(writer)
    await recovered(ledgers, writer)
    await deliver(answers)
    assert question.replies == [True] and writer.failed is None


# -- ensembles with more bookies than an entry has


async def test_the_write_set_of_the_last_entry_is_asked(ledgers: Ledgers) -> None:
    ledgers.bookies.register("b1", "b2", "b3", "b4", "b5")
    writer = await ledgers.striped(5, 3, 2)
    for entry_id in range(12):
        await writer.append(b"x")
        await turns()
        ledgers.bookies.seen.clear()
        question = await ask(writer)
        assert question.replies == [True]
        members = [writer._adds.ensemble[slot] for slot in write_set(entry_id, 5, 3)]
        assert sent(ledgers) == {(bookie, entry_id): 1 for bookie in members}


async def test_two_of_a_write_set_prove_it_and_who_is_not_in_it_does_not_count(ledgers: Ledgers) -> None:
    ledgers.bookies.register("b1", "b2", "b3", "b4", "b5")
    writer = await ledgers.striped(5, 3, 2)
    await writer.append(b"0")
    await turns()
    held = {name: ledgers.bookies.hold(bookie=name, kind="add", answer=True) for name in ("b1", "b2", "b3")}
    question = Question(writer)
    await submit(writer, *[b"x"] * 3)
    assert question.replies == [], "b4 and b5 have acknowledged entries that were sent later"
    pass_on(held["b1"])
    assert question.replies == []
    pass_on(held["b3"])
    assert question.replies == [True]
    await deliver(*held.values())
    assert writer.last_acked == 3


async def test_in_stripes_what_was_sent_before_does_not_count(ledgers: Ledgers) -> None:
    ledgers.bookies.register("b1", "b2", "b3", "b4", "b5")
    writer = await ledgers.striped(5, 3, 2)
    await writer.append(b"0")
    await turns()
    answers = ledgers.bookies.hold(kind="add", answer=True)
    await submit(writer, *[b"x"] * 10)
    question = await ask(writer)
    entries = [go for one, go in answers.kept if one.entry_id > 0]
    repeats = [go for one, go in answers.kept if one.entry_id == 0]
    assert (len(entries), len(repeats)) == (30, 3)
    for go in entries:
        go()
    assert writer.last_acked == 10 and question.replies == []
    repeats[0]()
    assert question.replies == []
    repeats[1]()
    assert question.replies == [True]


async def test_a_write_set_with_too_few_bookies_is_not_asked_though_others_are_up(ledgers: Ledgers) -> None:
    ledgers.bookies.register("b1", "b2", "b3", "b4", "b5")
    writer = await ledgers.striped(5, 3, 2)
    await writer.append(b"0")
    await turns()
    ledgers.bookies.crash("b1", "b2")
    await turns()
    assert not Question(writer).taken
    ledgers.bookies.restart("b2")
    question = await ask(writer)
    assert question.replies == [True]
