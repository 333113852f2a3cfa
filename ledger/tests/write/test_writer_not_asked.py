"""When a writer cannot ask whether anybody fenced the ledger, and who is not answered: a change of bookies, large entries, the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.write.questions import Question, ask, first_entry, pass_on, recovered, sent
from tests.writers import close_begun

from boki_common import limits
from boki_common.errors import ClosedError, LedgerFenced
from boki_common.testing.virtual_time import let_pass
from boki_ledger.rules.unfenced import UNPROVEN_S
from boki_ledger.testing.ledgers import Ledgers, deliver, submit, turns
from boki_ledger.write.replicated_adds import JOINED_BYTES
from boki_ledger.write.writer import LedgerWriter

pytestmark = pytest.mark.usefixtures("unhurried")


@pytest.fixture
async def writer(ledgers: Ledgers) -> LedgerWriter:
    return await first_entry(ledgers)


async def test_it_cannot_be_asked_before_an_entry_is_acknowledged(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    questions = [Question(writer)]
    held = ledgers.bookies.hold(kind="add")
    writer.submit(b"0")
    questions.append(Question(writer))
    await turns()
    questions.append(Question(writer))
    held.release()
    assert not any(one.taken for one in questions)
    await turns()
    assert not any(one.replies for one in questions)
    assert set(sent(ledgers).values()) == {1}
    asked = await ask(writer)
    assert asked.replies == [True]


async def test_it_cannot_be_asked_with_a_large_entry(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    for size, taken in ((JOINED_BYTES, True), (JOINED_BYTES + 1, False), (1, True)):
        await writer.append(bytes(size))
        question = await ask(writer)
        assert (question.taken, question.replies) == (taken, [True] * taken), size


async def test_of_entries_that_complete_together_the_last_decides(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    for sizes, taken in (((1, JOINED_BYTES + 1), False), ((JOINED_BYTES + 1, 1), True)):
        held = ledgers.bookies.hold(kind="add", answer=True)
        first = writer.last_submitted + 1
        await submit(writer, *(bytes(size) for size in sizes))
        for entry_id in (first + 1, first):
            for _ in range(3):
                pass_on(held, entry_id=entry_id)
        held.active = False
        assert writer.last_acked == first + 1
        question = await ask(writer)
        assert (question.taken, question.replies) == (taken, [True] * taken)


async def test_after_a_change_of_the_ensemble_it_can_be_asked_from_the_next_entry_on(
    ledgers: Ledgers, writer: LedgerWriter
) -> None:
    ledgers.store.gate.clear()
    ledgers.bookies.register("b1", "b2", "b3", "b4")
    adds = ledgers.bookies.hold(kind="add")
    ledgers.bookies.crash("b1")
    await submit(writer, b"1")
    assert writer._adds.acks.frozen
    ledgers.bookies.seen.clear()
    frozen = Question(writer)
    ledgers.bookies.restart("b1")
    still_frozen = Question(writer)
    ledgers.store.gate.set()
    await turns()
    assert (await ledgers.metadata(writer.ledger_id)).ensembles[-1] == (1, ("b4", "b2", "b3"))
    assert not writer._adds.acks.frozen and writer.last_acked == 0
    changed = Question(writer)
    assert [one.taken for one in (frozen, still_frozen, changed)] == [False] * 3
    assert not any(entry_id == 0 for _, entry_id in sent(ledgers)), "entry 0 was never sent to the present ensemble"
    await deliver(adds)
    assert writer.last_acked == 1
    ledgers.bookies.seen.clear()
    asked = await ask(writer)
    assert asked.replies == [True]
    assert sent(ledgers) == {("b4", 1): 1, ("b2", 1): 1, ("b3", 1): 1}
    assert not any(one.replies for one in (frozen, still_frozen, changed))


async def test_a_question_in_flight_when_the_ensemble_changes_is_unproven(ledgers: Ledgers) -> None:
    writer = await first_entry(ledgers)
    ledgers.bookies.register("b1", "b2", "b3", "b4")
    adds = ledgers.bookies.hold(kind="add")
    writer.submit(b"1")
    question = await ask(writer)
    ledgers.bookies.crash("b1")
    await turns()
    assert question.replies == [False]
    await deliver(adds)
    assert writer.last_acked == 1 and question.replies == [False]


async def test_whoever_waits_when_a_change_begins_is_answered_that_nothing_is_proven(ledgers: Ledgers) -> None:
    """The bookie failed before they asked, so that nothing but the change interrupts them."""
    writer = await first_entry(ledgers)
    ledgers.bookies.crash("b1")
    await turns()
    held = ledgers.bookies.hold(kind="add")
    questions = [Question(writer) for _ in range(limits.LEDGER_FENCE_CHECKS + 1)]
    assert all(one.taken for one in questions)
    ledgers.bookies.register("b1", "b2", "b3", "b4")
    await submit(writer, b"1")
    assert (await ledgers.metadata(writer.ledger_id)).ensembles[-1] == (1, ("b4", "b2", "b3"))
    assert [one.replies for one in questions] == [[False]] * (limits.LEDGER_FENCE_CHECKS + 1)
    await deliver(held)
    assert [one.replies for one in questions] == [[False]] * (limits.LEDGER_FENCE_CHECKS + 1)


async def test_bookies_that_a_recovery_left_out_prove_nothing_during_a_change(
    ledgers: Ledgers, writer: LedgerWriter
) -> None:
    """The store has the new ensemble, its answer is lost on the way to the writer; the recovery fences the new ensemble only."""
    committed = answers_shut(ledgers)
    ledgers.bookies.register("b1", "b2", "b3", "b4", "b5")
    adds = ledgers.bookies.hold(kind="add", recovery=False)
    ledgers.bookies.crash("b1", "b2")
    await submit(writer, b"1")
    assert (await ledgers.metadata(writer.ledger_id)).ensembles[-1] == (1, ("b4", "b5", "b3"))
    late = ledgers.bookies.hold(bookie="b3", kind="read", fence=True)
    ledgers.bookies.restart("b1", "b2")
    adds.discard()
    adds.active = False
    await recovered(ledgers, writer)
    question = await ask(writer)
    assert not question.taken and question.replies == []
    committed()
    await deliver(late)
    assert question.replies == []


def answers_shut(ledgers: Ledgers) -> Callable[[], None]:
    """From now on the store does what the writer asks for, and its answers wait until the returned is called."""
    store, gate = ledgers.store, asyncio.Event()
    answer = store.set

    async def answer_late(path: str, value: bytes, **options: object) -> int:
        version = await answer(path, value, **options)  # type: ignore[arg-type]
        await gate.wait()
        return version

    store.set = answer_late  # type: ignore[method-assign]
    return gate.set


@pytest.mark.parametrize("how", ["closed", "abandoned", "closing", "unforced"])
async def test_it_cannot_be_asked_at_the_end_and_nobody_is_answered_after_it(ledgers: Ledgers, how: str) -> None:
    if how == "unforced":
        writer = await ledgers.client.create(deferred_sync=True)
        await writer.append(b"0")
        await turns()
        question = await ask(writer)
        assert (question.taken, question.replies) == (False, [])
        return
    writer = await first_entry(ledgers)
    held = ledgers.bookies.hold(kind="add", answer=True)
    question = Question(writer)
    closing: asyncio.Future[int] | None = None
    await turns()
    if how == "closed":
        await writer.close()
    elif how == "abandoned":
        writer.abandon()
    else:
        closing = await close_begun(ledgers, writer)
    refused = Question(writer)
    if closing is not None:
        ledgers.store.gate.set()
        assert await closing == 0
    await deliver(held)
    assert question.replies == [] and (refused.taken, refused.replies) == (False, [])
    with pytest.raises(ClosedError):
        writer.submit(b"1")


async def test_it_cannot_be_asked_in_the_turn_in_which_the_writer_begins_to_close(ledgers: Ledgers) -> None:
    writer = await first_entry(ledgers)
    closing = asyncio.ensure_future(writer.close())
    await asyncio.sleep(0)
    question = Question(writer)
    assert await closing == 0
    await turns()
    assert (question.taken, question.replies, sent(ledgers)) == (False, [], {})


@pytest.mark.parametrize("how", ["closed", "abandoned", "fenced"])
@pytest.mark.usefixtures("virtual_time")
async def test_the_time_limit_answers_nobody_after_the_end(how: str, ledgers: Ledgers, writer: LedgerWriter) -> None:
    held = ledgers.bookies.hold(kind="add", recovery=False, answer=True)
    questions = [Question(writer) for _ in range(limits.LEDGER_FENCE_CHECKS + 1)]
    await turns()
    if how == "closed":
        await writer.close()
    elif how == "abandoned":
        writer.abandon()
    else:
        await recovered(ledgers, writer)
        await submit(writer, b"1")
        pass_on(held, entry_id=1)
        assert isinstance(writer.failed, LedgerFenced)
    await let_pass(10 * UNPROVEN_S)
    assert not any(one.replies for one in questions)
