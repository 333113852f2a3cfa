"""How simulated clients read: in every way the SDK offers, beside trims and aux data."""

from __future__ import annotations

from typing import Final

import boki
from boki_common.errors import BokiError
from boki_sim.checkers.history import ALL, Operation, Read
from boki_sim.work.operations import AT, AUX, KEPT, NEXT, OK, PREV, READ, SEEK, TAGS, TRIM, payload_of
from boki_sim.work.recorder import Recorder

SCANNED: Final = 20
FAR: Final = 1 << 40
"""Later, in ms, than any record will be."""


async def read_one(
    recorder: Recorder, book: boki.Book, how: Read, tag: str | None, bound: int | None, *, wait: float | None = None
) -> Operation:
    """One read, written down."""
    consistency = recorder.consistency()
    operation = recorder.begin(book, READ, how=how, tag=tag or ALL, consistency=consistency)
    try:
        if how == NEXT:
            operation.low = bound or 0
            record = await book.read_next(tag, at_least=bound, wait=wait, consistency=consistency)
        elif how == PREV:
            operation.high = None if bound is None else bound + 1
            record = await book.read_prev(tag, at_most=bound, consistency=consistency)
        elif how == AT:
            operation.low = bound or 1
            operation.high = operation.low + 1
            record = await book.read_at(operation.low, consistency=consistency)
        else:
            record = await book.check_tail(tag, consistency=consistency)
    except BokiError as error:
        recorder.refused(operation, error)
    else:
        recorder.found(operation, book, record)
    return operation


async def read_somewhere(recorder: Recorder, book: boki.Book, how: Read) -> None:
    """Near what was seen last, or from an end."""
    numbers = recorder.numbers
    tag = numbers.choice((None, *TAGS))
    near = recorder.seen.get(str(book.name), 0)
    bound = None if numbers.random() < 0.3 else max(0, near + numbers.randrange(-50, 50))
    if how == PREV and bound is not None:
        bound = min(bound, book.position or 0)  # above, there is no one answer
    await read_one(recorder, book, how, tag, bound)


async def wait_for_one(recorder: Recorder, book: boki.Book) -> None:
    """A read that waits for a record: of any near place, or of what the session has not seen yet."""
    numbers = recorder.numbers
    tag = numbers.choice((None, *TAGS))
    near = recorder.seen.get(str(book.name), 0) + numbers.randrange(-50, 50)
    bound = (book.position or 0) + 1 if numbers.random() < 0.5 else max(0, near)
    await read_one(recorder, book, NEXT, tag, bound, wait=numbers.random())


async def read_the_place(recorder: Recorder, book: boki.Book) -> None:
    """A point read: of a record that was seen, or of a place beside it."""
    near = recorder.seen.get(str(book.name), 1)
    bound = max(1, near + recorder.numbers.choice((0, 0, -1, 1, -20)))
    await read_one(recorder, book, AT, None, bound)


async def scan(recorder: Recorder, book: boki.Book) -> None:
    """Record by record, as one read after the other."""
    tag = recorder.numbers.choice((None, *TAGS))
    bound = max(0, recorder.seen.get(str(book.name), 0) - recorder.numbers.randrange(100))
    for _ in range(SCANNED):
        operation = await read_one(recorder, book, NEXT, tag, bound)
        if operation.outcome != OK or operation.place is None:
            return
        bound = operation.place + 1


async def seek(recorder: Recorder, book: boki.Book) -> None:
    """By a time: about that of a record, the beginning of all, or one that is far ahead; then reads from there."""
    numbers = recorder.numbers
    near = recorder.times.get(str(book.name), 0)
    wanted = max(0, numbers.choice((near, near, near - 1, near + 1, near - 1_000, 0, near + FAR)))
    operation = recorder.begin(book, SEEK, time_ms=wanted, consistency=recorder.consistency())
    try:
        place = await book.seek(wanted, consistency=operation.consistency)
    except BokiError as error:
        recorder.refused(operation, error)
        return
    recorder.succeeded(operation)
    operation.low = place
    await read_one(recorder, book, NEXT, None, place)


async def leave_aux(recorder: Recorder, book: boki.Book) -> None:
    """Leaves aux data beside a record, which says whose it is; then looks at it."""
    seqnum = recorder.seen.get(str(book.name))
    if seqnum is None:
        return
    operation = recorder.begin(book, AUX, low=seqnum)
    operation.aux = f"{book.name} {seqnum} ".encode() + payload_of(recorder.data())
    try:
        kept = await book.set_aux_data(seqnum, operation.aux)
    except BokiError as error:
        recorder.refused(operation, error)
        return
    recorder.succeeded(operation)
    operation.answer = KEPT if kept else ""
    await read_one(recorder, book, AT, None, seqnum)


async def trim(recorder: Recorder, book: boki.Book) -> None:
    """Below something that this session has seen: a mark above that would be lowered."""
    numbers = recorder.numbers
    seen = recorder.seen.get(str(book.name))
    if seen is None:
        return
    whole = numbers.random() < 0.3
    tags = ("",) if whole else numbers.sample(TAGS, numbers.randrange(1, len(TAGS) + 1))
    forget = numbers.random() < recorder.mix.forget
    await trim_below(recorder, book, [(tag, max(1, seen + 1 - numbers.randrange(100))) for tag in tags], forget=forget)


async def trim_below(
    recorder: Recorder, book: boki.Book, pairs: list[tuple[str, int]], *, forget: bool = False
) -> bool:
    """Trims streams ("" is the whole book); whether it was acknowledged."""
    operations = [recorder.begin(book, TRIM, tag=tag, before=bound, forget=forget) for tag, bound in pairs]
    try:
        await book.trim([(tag or None, bound) for tag, bound in pairs], forget=forget)
    except BokiError as error:
        for one in operations:
            recorder.refused(one, error)
        return False
    for one in operations:
        recorder.succeeded(one)
    return True
