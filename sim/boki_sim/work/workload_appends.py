"""How simulated clients append: one, a pipeline, many at once, on conditions, and asking what became of what was given up."""

from __future__ import annotations

import asyncio
from typing import Final

import boki
from boki_common.errors import BokiError, Conflict, OutcomeUnknown
from boki_sim.checkers.history import Operation
from boki_sim.work.operations import (
    APPEND,
    LOCKS,
    NEVER,
    NOT_DECIDED,
    NOTHING,
    OK,
    TAGS,
    TAIL,
    UNKNOWN,
    WHY,
    payload_of,
)
from boki_sim.work.recorder import Recorder
from boki_sim.work.workload_reads import read_one, trim_below

Expect = dict[str, int | None]

ASKED: Final = 5
"""So often it is asked what became of an append."""
ASKED_AGAIN_S: Final = 0.5


async def append(recorder: Recorder, book: boki.Book) -> None:
    """One record, with a condition now and then."""
    operation = recorder.begin(
        book, APPEND, expect=await expectation_now_and_then(recorder, book), data=recorder.data()
    )
    operation.tags = recorder.tags()
    await send(recorder, book, operation)


async def send(recorder: Recorder, book: boki.Book, operation: Operation) -> None:
    """Makes an append that is written down."""
    writer = (operation.writer, operation.number) if operation.writer else None
    try:
        seqnum = await book.append(
            payload_of(operation.data),
            tags=operation.tags,
            expect=condition(operation),
            writer=writer,
            timeout=recorder.mix.timeout_s,
        )
    except BokiError as error:
        recorder.refused(operation, error)
    else:
        recorder.appended(operation, seqnum)


def condition(operation: Operation) -> dict[str | int, int | None] | None:
    """What an append expects, as the SDK takes it."""
    return dict(operation.expect.items()) or None


async def expectation_now_and_then(recorder: Recorder, book: boki.Book) -> Expect:
    """A condition for some share of the appends."""
    if recorder.numbers.random() >= recorder.mix.conditional:
        return {}
    tag = recorder.numbers.choice(TAGS)
    if recorder.mix.forget and book.position and recorder.numbers.random() < 0.2:
        return {tag: book.position}  # nothing newer than what the session has seen
    found = await read_one(recorder, book, TAIL, tag, None)
    return {tag: found.place} if found.outcome == OK else {}


async def burst(recorder: Recorder, book: boki.Book) -> None:
    """A pipeline of tickets; what was given up is asked for."""
    waiting: list[tuple[Operation, boki.Ticket]] = []
    for _ in range(recorder.numbers.randrange(1, recorder.mix.burst + 1)):
        operation = recorder.begin(book, APPEND, tags=recorder.tags(), data=recorder.data())
        try:
            waiting.append((operation, book.submit(payload_of(operation.data), tags=operation.tags)))
        except BokiError as error:
            recorder.refused(operation, error)
            break
    for operation, ticket in waiting:
        try:
            recorder.appended(operation, await ticket)
        except BokiError as error:
            recorder.refused(operation, error)
    unknown = [pair for pair in waiting if pair[0].outcome == UNKNOWN]
    if unknown and recorder.numbers.random() < 0.8:
        recorder.numbers.shuffle(unknown)
        for operation, ticket in unknown[:ASKED]:
            await find_out(recorder, operation, ticket)


async def many(recorder: Recorder, book: boki.Book) -> None:
    operations = [
        recorder.begin(book, APPEND, tags=recorder.tags(), data=recorder.data())
        for _ in range(recorder.numbers.randrange(1, recorder.mix.burst + 1))
    ]
    try:
        seqnums = await book.append_many(
            [(payload_of(one.data), one.tags) for one in operations], timeout=recorder.mix.timeout_s
        )
    except BokiError as error:
        for operation in operations:
            recorder.refused(operation, error)
            if operation.outcome == NEVER and error.facts.get("committed"):
                operation.outcome = UNKNOWN
    else:
        for operation, seqnum in zip(operations, seqnums, strict=True):
            recorder.appended(operation, seqnum)


# -- tickets that are asked


async def ticket(recorder: Recorder, book: boki.Book) -> None:
    """One record whose ticket is asked what it waits for and, after the time-out, what became of it."""
    operation = recorder.begin(
        book, APPEND, expect=await expectation_now_and_then(recorder, book), data=recorder.data()
    )
    operation.tags = recorder.tags()
    try:
        sent = book.submit(payload_of(operation.data), tags=operation.tags, expect=condition(operation))
    except BokiError as error:
        recorder.refused(operation, error)
        return
    await ask_why(recorder, book, operation, sent)
    try:
        async with asyncio.timeout(recorder.mix.timeout_s):
            seqnum = await sent
    except TimeoutError:
        await ask_why(recorder, book, operation, sent)
        await find_out(recorder, operation, sent)
    except BokiError as error:
        recorder.refused(operation, error)
        if operation.outcome == UNKNOWN:
            await find_out(recorder, operation, sent)
    else:
        recorder.appended(operation, seqnum)


async def ask_why(recorder: Recorder, book: boki.Book, about: Operation, sent: boki.Ticket) -> None:
    """What the append waits for."""
    operation = recorder.begin(book, WHY, data=about.data)
    try:
        why = await sent.why()
    except BokiError as error:
        recorder.refused(operation, error)
        return
    recorder.succeeded(operation)
    operation.answer = NOT_DECIDED if why.waits_for == NOTHING and not sent.done() else why.waits_for


async def find_out(recorder: Recorder, operation: Operation, sent: boki.Ticket) -> None:
    """Asks until it is certain; now and then with a void in the append's place."""
    settle = recorder.numbers.random() < 0.5
    for _ in range(ASKED):
        try:
            found = await sent.outcome(settle=settle)
        except OutcomeUnknown as error:
            recorder.refused(operation, error)
        except BokiError as error:
            recorder.refused(operation, error)
            return
        else:
            if isinstance(found, boki.Committed):
                recorder.appended(operation, found.seqnum)
            elif isinstance(found, Conflict):
                recorder.refused(operation, found)
            else:
                recorder.never(operation)
            return
        await asyncio.sleep(ASKED_AGAIN_S)


# -- locks: streams that are empty now and then


async def lock(recorder: Recorder, book: boki.Book) -> None:
    """Appends to a stream that must be empty, and empties it again, so that it is forgotten when it is old."""
    tag = recorder.numbers.choice(LOCKS)
    operation = recorder.begin(book, APPEND, tags=(tag,), data=recorder.data(), expect={tag: None})
    await send(recorder, book, operation)
    held = operation.seqnum
    if held is None and operation.actual:
        held = operation.actual.get(tag)
    await recorder.pause()
    if held:
        await trim_below(recorder, book, [(tag, held + 1)], forget=recorder.numbers.random() < 0.8)
        if recorder.numbers.random() < 0.3:  # what was there once is expected: it is trimmed, or forgotten
            again = recorder.begin(book, APPEND, tags=(tag,), data=recorder.data(), expect={tag: max(1, held - 1)})
            await send(recorder, book, again)
