"""Records of sealed terms: read once, in order, of all logs."""

from __future__ import annotations

from typing import Any

import pytest

from boki_common.errors import CorruptData
from boki_common.metadata.store import ensure_path
from boki_metalog.follow.term_history import TermHistory
from boki_metalog.terms.term_order import slot_mask
from boki_metalog.terms.term_record import TERMS_PATH, VERSION, Location, TermRecord, encode_record, term_path
from boki_metalog.terms.view import SlotRange


def record(term: int, log: int, *slots: tuple[int, int]) -> TermRecord:
    return TermRecord(VERSION, term, log, tuple(SlotRange(*one) for one in slots), 100 + term, -1, 0, 5, Location())


async def store_of(cluster: Any, *records: TermRecord) -> Any:
    """A store that has these records, each at its term."""
    store = await cluster.store()
    await ensure_path(store, TERMS_PATH)
    for one in records:
        await store.create(term_path(one.term), encode_record(one))
    return store


async def test_records_are_read_once_and_delivered_per_log(cluster: Any) -> None:
    store = await cluster.store()
    history = TermHistory(store)
    await history.refresh()
    assert history.sealed(0, above=0, below=100) == [] and history.logs == []
    records = [record(1, 0, (0, 1023)), record(2, 1), record(10, 0, (0, 511)), record(11, 1, (512, 1023))]
    await store_of(cluster, *records)
    await history.refresh()
    assert history.sealed(0, above=0, below=100) == [records[0], records[2]]
    assert history.sealed(0, above=1, below=10) == []
    assert history.sealed(1, above=0, below=11) == [records[1]]
    assert history.logs == [0, 1]
    await store.delete(term_path(1), version=0)
    await history.refresh()
    assert history.sealed(0, above=0, below=5) == [records[0]], "what was read is kept"


async def test_a_record_that_was_read_is_delivered_and_no_other(cluster: Any) -> None:
    foreign = record(3, 0, (10, 20))
    history = TermHistory(await store_of(cluster, foreign), slots=slot_mask([(0, 9)]))
    assert history.record(3) is None
    await history.refresh()
    assert history.record(3) == foreign
    assert history.record(2) is None and history.record(4) is None


async def test_terms_before_are_those_of_other_logs(cluster: Any) -> None:
    records = record(1, 0, (0, 1023)), record(2, 1), record(3, 0, (0, 511)), record(4, 1, (512, 1023))
    history = TermHistory(await store_of(cluster, *records))
    await history.refresh()
    assert history.before(4, 1, [SlotRange(512, 1023)]) == (1,)
    assert history.before(3, 0, [SlotRange(0, 511)]) == ()
    assert history.before(5, 0, [SlotRange(0, 1023)]) == (4,)
    assert history.before(5, 2, [SlotRange(0, 1023)]) == (3, 4)


async def test_a_record_that_cannot_be_is_an_error(cluster: Any) -> None:
    store = await store_of(cluster)
    await store.create(term_path(3), encode_record(record(4, 0)))
    with pytest.raises(CorruptData):
        await TermHistory(store).refresh()


async def test_who_needs_some_slots_gets_the_terms_of_these_only(cluster: Any) -> None:
    records = record(1, 0, (10, 1023)), record(2, 1, (10, 20)), record(3, 0, (0, 9)), record(4, 0, (0, 9))
    store = await store_of(cluster, *records)
    notified: list[int] = []
    history = TermHistory(store, slots=slot_mask([(0, 9)]), log_found=lambda: notified.append(len(history.numbers)))
    await history.refresh()
    assert notified == [1, 2, 3], "each log, and the first needed term of one"
    assert history.had(0) and not history.had(1)
    assert [term for term in range(6) if history.foreign(term)] == [1, 2]
    assert history.before(5, 2, [SlotRange(0, 1023)]) == (4,), (
        "what others had in slots 10-20 is nobody's business here"
    )
