"""What machines did, read from a book: the events that each one handled, in order, and the laws that every execution keeps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

import pytest

import boki
from boki.testing._model import Model
from boki_common.records.tag_names import split_payload
from bokilib.records.events import Envelope, libraries_of, open_record
from bokirsm.model.events import DROPPED, PICKER, SAME_RECORD, UNRECORDED, Commit, Message, MessageId, messages_of

ARCHIVE: dict[int, bytes] = {}
"""The data of records that were trimmed, by seqnum, for tests that archive them."""


def archive_trims(patch: pytest.MonkeyPatch) -> list[int]:
    """Keep the records that hosts trim, so that `traces_of` finds all. A test of several books clears `ARCHIVE` before each.

    Returns:
        A list to which the number of trimmed records is added at each trim.
    """
    counts: list[int] = []
    trim = Model.trim

    def archived(model: Model, book: int, pairs: Iterable[tuple[int, int]], now_ms: int, *, forget: bool) -> None:
        before = dict(model._records)
        trim(model, book, pairs, now_ms, forget=forget)
        gone = [one for place, one in before.items() if place not in model._records]
        counts.append(len(gone))
        ARCHIVE.update({one.seqnum: bytes(split_payload(memoryview(one.payload))[1]) for one in gone})

    ARCHIVE.clear()
    patch.setattr(Model, "trim", archived)
    return counts


async def records_of(book: boki.Book) -> AsyncIterator[tuple[int, Envelope]]:
    """Yield the records of machines, also those that were archived, in order."""
    records = dict(ARCHIVE)
    async for item in book.read():
        if isinstance(item, boki.Record):
            records[item.seqnum] = item.data
    for seqnum, data in sorted(records.items()):
        envelope = open_record(seqnum, data)
        if "rsm" in libraries_of(seqnum, envelope):
            yield seqnum, envelope


async def traces_of(book: boki.Book) -> dict[str, list[str]]:
    """Return the names of the events that each machine handled.

    Asserts that each message was taken once, after it was sent, and that the commits of a machine are numbered without a hole.
    """
    sent: dict[MessageId, Message] = {}
    taken: set[MessageId] = set()
    numbers: dict[str, int] = {}
    found: dict[str, list[str]] = {}
    async for seqnum, envelope in records_of(book):
        events = PICKER.of(seqnum, envelope)
        sent.update({MessageId(seqnum, number): message for number, message in messages_of(events)})
        for event in events:
            if not isinstance(event, Commit):
                continue
            for one in event.took:
                id = MessageId(seqnum, one.number) if one.seqnum == SAME_RECORD else one
                if id.seqnum == UNRECORDED:
                    found.setdefault(event.id, []).append("at most once")
                    continue
                assert id in sent, f"{event.id} took {id}, which was never sent"
                assert id not in taken, f"{event.id} took {id} twice"
                assert sent[id].to == event.id
                taken.add(id)
                found.setdefault(event.id, []).append(sent[id].event)
            if event.k != DROPPED:
                assert event.k == numbers.get(event.id, 0) + 1, f"{event.id}: commit {event.k} after {numbers}"
                numbers[event.id] = event.k
    return found
