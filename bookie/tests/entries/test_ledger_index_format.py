"""Bytes of index and checkpoint mark: round trips, damage refused with file and offset."""

from __future__ import annotations

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_bookie.entries.ledger_index import HELD_FOR_GOOD, NO_HOLD, Ledger, LedgerIndex, LedgerUpdate
from boki_bookie.entries.ledger_index_format import (
    BLOCK_BYTES,
    CheckpointMark,
    decode_blocks,
    decode_mark,
    encode_blocks,
    encode_mark,
    owner_of,
)
from boki_bookie.entries.tombstones import Run
from boki_common.errors import CorruptData, VersionMismatch

MARK = CheckpointMark(3, 99, 12, bytes(range(16)), 4, 5_000, 6, 7_000)
OWNER = owner_of(MARK.bookie_id, 4)
LEDGERS = st.dictionaries(
    st.integers(0, 2**62),
    st.tuples(st.booleans(), st.booleans(), st.lists(st.integers(0, 2**62), max_size=20, unique=True)),
    max_size=8,
)


def ledgers(
    model: dict[int, tuple[bool, bool, list[int]]],
) -> list[tuple[Ledger, tuple[list[int], list[int], list[int]]]]:
    made = []
    for ledger_id, (fenced, validated, entries) in model.items():
        ledger = Ledger(ledger_id, ledger_id.to_bytes(20, "big"))
        ledger.fenced, ledger.validated = fenced, validated
        ordered = sorted(entries)
        made.append((ledger, (ordered, [entry * 3 + 1 for entry in ordered], [entry % 2**32 for entry in ordered])))
    return made


@given(LEDGERS)
def test_blocks_come_back(model: dict[int, tuple[bool, bool, list[int]]]) -> None:
    data = b"".join(encode_blocks(ledgers(model), 5, owner=OWNER))
    found = {}
    for update in decode_blocks(memoryview(data), owner=OWNER, name="index"):
        assert isinstance(update, LedgerUpdate)
        assert update.master_key == update.ledger_id.to_bytes(20, "big")
        assert list(update.locations) == [entry * 3 + 1 for entry in update.entries]
        assert list(update.body_bytes) == [entry % 2**32 for entry in update.entries]
        found[update.ledger_id] = update.fenced, update.validated, list(update.entries)
    assert found == {key: (fenced, validated, sorted(entries)) for key, (fenced, validated, entries) in model.items()}


def test_large_contents_become_several_blocks() -> None:
    entries = list(range(30_000))
    many = [(Ledger(number, bytes(20)), (entries, entries, entries)) for number in range(4)]
    blocks = list(encode_blocks(many, 1, owner=OWNER))
    assert len(blocks) == 2
    assert all(len(block) > BLOCK_BYTES for block in blocks)
    assert len(list(decode_blocks(memoryview(b"".join(blocks)), owner=OWNER, name="index"))) == 4


def test_damage_names_file_and_offset() -> None:
    blocks = [b"".join(encode_blocks(ledgers({number: (True, False, [1, 2])}), 1, owner=OWNER)) for number in (1, 2)]
    whole = b"".join(blocks)
    for at in range(len(blocks[0]), len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 4
        with pytest.raises(CorruptData, match="index") as caught:
            list(decode_blocks(memoryview(damaged), owner=OWNER, name="index"))
        assert caught.value.offset == len(blocks[0])
    with pytest.raises(CorruptData, match="index at byte 0"):
        list(decode_blocks(memoryview(whole[: len(blocks[0]) - 8]), owner=OWNER, name="index"))
    with pytest.raises(CorruptData, match="expected a block, found 7 bytes"):
        list(decode_blocks(memoryview(whole + bytes(7)), owner=OWNER, name="index"))


@pytest.mark.parametrize("owner", [owner_of(bytes(16), 4), owner_of(MARK.bookie_id, 5)])
def test_a_block_of_another_bookie_or_file_is_none(owner: int) -> None:
    data = b"".join(encode_blocks(ledgers({7: (True, False, [1])}), 1, owner=owner))
    with pytest.raises(CorruptData, match="of another file or bookie"):
        list(decode_blocks(memoryview(data), owner=OWNER, name="index"))


def versioned(block: bytes, version: int, owner: int) -> memoryview:
    """The block as another version would have written it."""
    changed = bytearray(block)
    changed[8] = version
    changed[4:8] = crc32c.crc32c(changed[8:], owner).to_bytes(4, "little")
    return memoryview(changed)


def test_blocks_of_the_version_before_are_read_and_newer_ones_refused() -> None:
    block = b"".join(encode_blocks(ledgers({7: (True, False, [1])}), 1, owner=OWNER))
    for version, owner in ((1, 0), (2, OWNER)):
        (update,) = decode_blocks(versioned(block, version, owner), owner=OWNER, name="index")
        assert isinstance(update, LedgerUpdate)
        assert (update.ledger_id, update.hold) == (7, NO_HOLD)
    with pytest.raises(VersionMismatch, match="expected ledger index version 3, found 4"):
        list(decode_blocks(versioned(block, 4, OWNER), owner=OWNER, name="index"))


@pytest.mark.parametrize("hold", [NO_HOLD, 0, 7, HELD_FOR_GOOD])
def test_holds_come_back(hold: int) -> None:
    (made,) = ledgers({7: (True, False, [1])})
    made[0].hold = hold
    (update,) = decode_blocks(memoryview(b"".join(encode_blocks([made], 1, owner=OWNER))), owner=OWNER, name="index")
    assert isinstance(update, LedgerUpdate)
    assert (update.hold, list(update.entries)) == (hold, [1])


def test_marks() -> None:
    data = encode_mark(MARK)
    assert decode_mark(data, name="CHECKPOINT") == MARK
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1
        with pytest.raises(CorruptData, match="CHECKPOINT"):
            decode_mark(damaged, name="CHECKPOINT")
    with pytest.raises(CorruptData):
        decode_mark(data[:-1], name="CHECKPOINT")
    newer = bytearray(data)
    newer[8] = 2
    newer[4:8] = crc32c.crc32c(newer[8:]).to_bytes(4, "little")
    with pytest.raises(VersionMismatch, match="expected checkpoint version 1, found 2"):
        decode_mark(newer, name="CHECKPOINT")


@given(st.lists(st.tuples(st.binary(max_size=36), st.integers(0, 5)), max_size=5))
def test_explicit_lacs_come_back_beside_entries(model: list[tuple[bytes, int]]) -> None:
    made = []
    for number, (lac, count) in enumerate(model):
        ledger = Ledger(number, bytes(20))
        ledger.explicit_lac = lac
        made.append((ledger, (list(range(count)), list(range(count)), list(range(count)))))
    data = memoryview(b"".join(encode_blocks(made, 1, owner=OWNER)))
    updates = [update for update in decode_blocks(data, owner=OWNER, name="index") if isinstance(update, LedgerUpdate)]
    assert [(update.explicit_lac, len(update.entries), list(update.body_bytes)) for update in updates] == [
        (lac, count, list(range(count))) for lac, count in model
    ]


def test_removals_come_before_the_ledgers_and_end_what_was_said() -> None:
    ledger = Ledger(7, bytes(20))
    first = b"".join(encode_blocks([(ledger, ([0, 1], [10, 20], [1, 1]))], 1, owner=OWNER))
    second = b"".join(
        encode_blocks([(ledger, ([5], [50], [1]))], 2, owner=OWNER, removals=[Run(1, 2**62, 20_000), ledger])
    )
    updates = list(decode_blocks(memoryview(first + second), owner=OWNER, name="index"))
    assert updates[1] == Run(1, 2**62, 20_000)
    index = LedgerIndex()
    for update in updates:
        index.restore_update(update)
    assert index.ledgers[7].places.entries() == [5]
    assert 8 in index.tombstones
    assert 7 not in index.tombstones, "it was there afterwards"
    index = LedgerIndex()
    for update in [updates[0], updates[2], updates[3]]:
        index.restore_update(update)
    assert index.ledgers[7].places.entries() == [5]
    assert index.stored_entries == 1
