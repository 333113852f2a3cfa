"""The batch cache against a list ordered by last use."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boki_common.records.record_batch import RecordBatch, join
from boki_logbook.read.cache import AUX_ITEM_BYTES, BatchCache
from boki_logbook.read.compression import compressor
from boki_logbook.testing.cluster import RecordSpec, RunSpec, make_batch


def batch_of(size: int) -> RecordBatch:
    return make_batch(RunSpec(1, bytes(16), 1, (RecordSpec(data=bytes(size)),)))


SMALL = batch_of(10)
COST = SMALL.kept_bytes


@given(
    st.integers(0, 4),
    st.lists(st.tuples(st.booleans(), st.integers(0, 6), st.integers(0, 3)), max_size=60),
)
def test_least_recently_used_batches_go_first(room: int, steps: list[tuple[bool, int, int]]) -> None:
    cache = BatchCache(room * COST + 3)
    model: list[tuple[int, int, RecordBatch]] = []
    for put, entry, size in steps:
        known = next((one for one in model if one[0] == entry), None)
        if put:
            batch = batch_of(10 + size)
            cache.put(9, entry, batch)
            if known is not None:
                model.remove(known)
            cost = batch.kept_bytes
            if cost <= cache.limit_bytes:
                model.append((entry, cost, batch))
            while sum(one[1] for one in model) > cache.limit_bytes:
                model.pop(0)
        else:
            assert cache.get(9, entry) is (known[2] if known is not None else None)
            if known is not None:
                model.remove(known)
                model.append(known)
        assert cache.used_bytes == sum(one[1] for one in model) <= cache.limit_bytes
        assert len(cache) == len(model)


def test_hits_and_misses_are_counted() -> None:
    cache = BatchCache(10 * COST)
    assert cache.get(1, 1) is None
    cache.put(1, 1, SMALL)
    assert cache.get(1, 1) is SMALL
    assert cache.get(2, 1) is None
    assert (cache.hits, cache.misses) == (1, 2)


def test_a_batch_over_the_limit_is_not_kept() -> None:
    cache = BatchCache(COST)
    cache.put(1, 1, SMALL)
    cache.put(1, 2, batch_of(5_000))
    assert len(cache) == 1


def test_compressed_batches_count_with_what_they_grow_to() -> None:
    raw = batch_of(100_000)
    packed = join([raw], term=1, shard=0, first_local_id=0, compress=compressor())
    small = RecordBatch.parse(memoryview(b"".join(packed)))
    assert small.size < 2_000
    assert small.kept_bytes > 100_000
    assert bytes(small.data) == bytes(raw.data)


@given(
    st.integers(0, 900),
    st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 300)), max_size=60),
)
def test_aux_data_shares_the_bytes_and_the_order_with_batches(room: int, steps: list[tuple[bool, int, int]]) -> None:
    cache = BatchCache(COST + room)
    cache.put(1, 1, SMALL)
    model: list[tuple[int, bytes]] = []
    for put, seqnum, size in steps:
        known = next((one for one in model if one[0] == seqnum), None)
        if put:
            assert cache.put_aux(seqnum, bytes(size))
            if known is not None:
                model.remove(known)
            model.append((seqnum, bytes(size)))
        else:
            assert cache.aux_rows([seqnum]) == ({} if known is None else {0: known[1]})
            if known is not None:
                model.remove(known)
                model.append(known)
        used = sum(len(data) + AUX_ITEM_BYTES for _, data in model)
        while used + COST * len(cache) > cache.limit_bytes:
            used -= len(model.pop(0)[1]) + AUX_ITEM_BYTES
        assert cache.aux_count == len(model)
        assert cache.used_bytes == used + COST * len(cache) <= cache.limit_bytes


def test_aux_data_over_the_limit_is_not_kept_and_what_was_there_goes() -> None:
    cache = BatchCache(1_000)
    assert cache.put_aux(5, b"small")
    assert not cache.put_aux(5, bytes(1_000))
    assert cache.aux_rows([5]) == {}
    assert (cache.used_bytes, cache.aux_count, len(cache)) == (0, 0, 0)


def test_records_are_taken_as_far_as_their_aux_data_fits_but_one_always() -> None:
    cache = BatchCache(10_000)
    for seqnum in (1, 3, 4):
        cache.put_aux(seqnum, bytes(100))
    assert cache.within_aux([1, 2, 3, 4], 200) == [1, 2, 3]
    assert cache.within_aux([1, 2, 3, 4], 300) == [1, 2, 3, 4]
    assert cache.within_aux([1, 2, 3, 4], 10) == [1, 2]
    assert cache.aux_rows([2, 3, 9]) == {1: bytes(100)}
