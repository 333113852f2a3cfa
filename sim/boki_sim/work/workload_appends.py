"""How simulated clients append: one, a pipeline, many at once, on conditions, and asking what became of what was given up."""

from __future__ import annotations

import asyncio
from typing import Final

import boki
from boki_common.errors import BokiError, Conflict, OutcomeUnknown
from boki_sim.work.notebook import Notebook
from boki_sim.work.operations import (
    APPEND,
    FAILED,
    LOCKS,
    NOT_DECIDED,
    NOTHING,
    OK,
    TAGS,
    TAIL,
    UNKNOWN,
    WHY,
    Operation,
)
from boki_sim.work.workload_reads import read_one, trim_below

Expect = dict[str | int, int | None]

ASKED: Final = 5
"""So often it is asked what became of an append."""
ASKED_AGAIN_S: Final = 0.5


async def append(notebook: Notebook, book: boki.Book) -> None:
    """One record, with a condition now and then."""
    operation = notebook.begin(
        book, APPEND, expect=await expectation_now_and_then(notebook, book), payload=notebook.payload()
    )
    operation.tags = notebook.tags()
    await send(notebook, book, operation)


async def send(notebook: Notebook, book: boki.Book, operation: Operation) -> None:
    """Makes an append that is written down."""
    writer = (operation.writer, operation.number) if operation.writer else None
    try:
        seqnum = await book.append(
            operation.payload,
            tags=operation.tags,
            expect=operation.expect,
            writer=writer,
            timeout=notebook.habits.patience_s,
        )
    except BokiError as error:
        notebook.refused(operation, error)
    else:
        notebook.told(operation, seqnum)


async def expectation_now_and_then(notebook: Notebook, book: boki.Book) -> Expect | None:
    """A condition for some share of the appends."""
    if notebook.numbers.random() >= notebook.habits.conditional:
        return None
    tag = notebook.numbers.choice(TAGS)
    if notebook.habits.forget and book.position and notebook.numbers.random() < 0.2:
        return {tag: book.position}  # nothing newer than what the session has seen
    found = await read_one(notebook, book, TAIL, tag, None)
    return {tag: found.seqnum} if found.outcome == OK else None


async def burst(notebook: Notebook, book: boki.Book) -> None:
    """A pipeline of tickets; what was given up is asked for."""
    waiting: list[tuple[Operation, boki.Ticket]] = []
    for _ in range(notebook.numbers.randrange(1, notebook.habits.burst + 1)):
        operation = notebook.begin(book, APPEND, notebook.tags(), payload=notebook.payload())
        try:
            waiting.append((operation, book.submit(operation.payload, tags=operation.tags)))
        except BokiError as error:
            notebook.refused(operation, error)
            break
    for operation, ticket in waiting:
        try:
            notebook.told(operation, await ticket)
        except BokiError as error:
            notebook.refused(operation, error)
    unknown = [pair for pair in waiting if pair[0].outcome == UNKNOWN]
    if unknown and notebook.numbers.random() < 0.8:
        notebook.numbers.shuffle(unknown)
        for operation, ticket in unknown[:ASKED]:
            await find_out(notebook, operation, ticket)


async def many(notebook: Notebook, book: boki.Book) -> None:
    """In one call."""
    operations = [
        notebook.begin(book, APPEND, notebook.tags(), payload=notebook.payload())
        for _ in range(notebook.numbers.randrange(1, notebook.habits.burst + 1))
    ]
    try:
        seqnums = await book.append_many(
            [(one.payload, one.tags) for one in operations], timeout=notebook.habits.patience_s
        )
    except BokiError as error:
        for operation in operations:
            notebook.refused(operation, error)
            if operation.outcome == FAILED and error.facts.get("committed"):
                operation.outcome = UNKNOWN
    else:
        for operation, seqnum in zip(operations, seqnums, strict=True):
            notebook.told(operation, seqnum)


# -- tickets that are asked


async def ticket(notebook: Notebook, book: boki.Book) -> None:
    """One record whose ticket is asked what it waits for, and, when patience is over, what became of it."""
    operation = notebook.begin(
        book, APPEND, expect=await expectation_now_and_then(notebook, book), payload=notebook.payload()
    )
    operation.tags = notebook.tags()
    try:
        sent = book.submit(operation.payload, tags=operation.tags, expect=operation.expect)
    except BokiError as error:
        notebook.refused(operation, error)
        return
    await ask_why(notebook, book, operation, sent)
    try:
        async with asyncio.timeout(notebook.habits.patience_s):
            seqnum = await sent
    except TimeoutError:
        await ask_why(notebook, book, operation, sent)
        await find_out(notebook, operation, sent)
    except BokiError as error:
        notebook.refused(operation, error)
        if operation.outcome == UNKNOWN:
            await find_out(notebook, operation, sent)
    else:
        notebook.told(operation, seqnum)


async def ask_why(notebook: Notebook, book: boki.Book, about: Operation, sent: boki.Ticket) -> None:
    """What the append waits for."""
    operation = notebook.begin(book, WHY, payload=about.payload)
    try:
        why = await sent.why()
    except BokiError as error:
        notebook.refused(operation, error)
        return
    notebook.told(operation, None)
    operation.said = NOT_DECIDED if why.waits_for == NOTHING and not sent.done() else why.waits_for


async def find_out(notebook: Notebook, operation: Operation, sent: boki.Ticket) -> None:
    """Asks until it is certain; now and then with a void in the append's place."""
    settle = notebook.numbers.random() < 0.5
    for _ in range(ASKED):
        try:
            found = await sent.outcome(settle=settle)
        except OutcomeUnknown as error:
            notebook.refused(operation, error)
        except BokiError as error:
            notebook.refused(operation, error)
            return
        else:
            if isinstance(found, boki.Committed):
                notebook.told(operation, found.seqnum)
            elif isinstance(found, Conflict):
                notebook.refused(operation, found)
            else:
                notebook.never(operation)
            return
        await asyncio.sleep(ASKED_AGAIN_S)


# -- locks: streams that are empty now and then


async def lock(notebook: Notebook, book: boki.Book) -> None:
    """Appends to a stream that must be empty, and empties it again, so that it is forgotten when it is old."""
    tag = notebook.numbers.choice(LOCKS)
    operation = notebook.begin(book, APPEND, (tag,), payload=notebook.payload(), expect={tag: None})
    await send(notebook, book, operation)
    held = operation.seqnum
    if held is None and operation.actual:
        held = operation.actual.get(tag)
    await notebook.pause()
    if held:
        await trim_below(notebook, book, [(tag, held + 1)], forget=notebook.numbers.random() < 0.8)
        if notebook.numbers.random() < 0.3:  # what was there once is expected: it is trimmed, or forgotten
            again = notebook.begin(book, APPEND, (tag,), payload=notebook.payload(), expect={tag: max(1, held - 1)})
            await send(notebook, book, again)
