"""What machines did, read from a book: the events that each one handled, in order, and the laws that every execution keeps."""

from __future__ import annotations

import boki
from bokilib.records.events import open_record
from bokirsm.model.events import DROPPED, PICKER, SAME_RECORD, Commit, Message, MessageId, messages_of


async def traces_of(book: boki.Book) -> dict[str, list[str]]:
    """Return the names of the events that each machine handled.

    Asserts that each message was taken once, after it was sent, and that the commits of a machine are numbered without a hole.
    """
    sent: dict[MessageId, Message] = {}
    taken: set[MessageId] = set()
    numbers: dict[str, int] = {}
    found: dict[str, list[str]] = {}
    async for item in book.read():
        assert isinstance(item, boki.Record), item
        if not any(str(tag).startswith("rsm/") for tag in item.tags):
            continue
        events = PICKER.of(item.seqnum, open_record(item.seqnum, item.data))
        sent.update({MessageId(item.seqnum, number): message for number, message in messages_of(events)})
        for event in events:
            if not isinstance(event, Commit):
                continue
            for one in event.took:
                id = MessageId(item.seqnum, one.number) if one.seqnum == SAME_RECORD else one
                assert id in sent, f"{event.id} took {id}, which was never sent"
                assert id not in taken, f"{event.id} took {id} twice"
                assert sent[id].to == event.id
                taken.add(id)
                found.setdefault(event.id, []).append(sent[id].event)
            if event.k != DROPPED:
                assert event.k == numbers.get(event.id, 0) + 1, f"{event.id}: commit {event.k} after {numbers}"
                numbers[event.id] = event.k
    return found
