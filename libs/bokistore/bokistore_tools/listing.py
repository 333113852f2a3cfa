"""Which objects the newest records of a book are about: where a page begins, without reading the whole book.

Records that no store wrote are passed over: a book may have other users.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import boki
from boki_common.errors import Trimmed
from bokilib.errors import ForeignRecord, UnknownEvent
from bokistore import BokiStore
from bokistore.model.directory_rules import subjects_of
from bokistore.model.events import PICKER, AnyEvent
from bokistore.read.inspection import KINDS

CHECKPOINT: Final = "checkpoint"
"""The kind of a record that has the whole state of an object."""


class Touched(NamedTuple):
    """The newest record of an object among those that were looked at."""

    name: str
    seqnum: int
    time_ms: int
    kind: str


class Recent(NamedTuple):
    """Objects and collections in the newest records of a book.

    Attributes:
        objects: newest first, each once.
        collections: names, in order.
        records: how many were read.
        whole: whether they are all records of the book.
    """

    objects: list[Touched]
    collections: list[str]
    records: int
    whole: bool


async def recent(store: BokiStore, records: int) -> Recent:
    """Return the objects that the newest records change, whether they exist or not."""
    objects: dict[str, Touched] = {}
    collections: set[str] = set()
    at_most: int | None = None
    looked = 0
    while looked < records:
        try:
            record = await store.log.book.read_prev(at_most=at_most)
        except Trimmed:
            record = None
        if record is None:
            return Recent(list(objects.values()), sorted(collections), looked, whole=True)
        looked += 1
        at_most = record.seqnum - 1
        events = await _events(store, record)
        for subject in subjects_of(events):
            if subject.collection:
                collections.add(subject.collection)
            elif subject.name not in objects:
                kinds = [
                    KINDS[type(one)]
                    for one in events
                    if isinstance(one, tuple(KINDS)) and subjects_of([one]) == [subject]
                ]
                kind = kinds[-1] if kinds else CHECKPOINT
                objects[subject.name] = Touched(subject.name, record.seqnum, record.time_ms, kind)
    return Recent(list(objects.values()), sorted(collections), looked, whole=False)


async def _events(store: BokiStore, record: boki.Record) -> list[AnyEvent]:
    try:
        return PICKER.of(record.seqnum, await store.log.open(record))
    except (ForeignRecord, UnknownEvent):
        return []
