"""The bytes of metalog entries: as the table says, and nothing else is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common import limits
from boki_common.errors import ProtocolError, VersionMismatch
from boki_metalog.metalog_entry import Close, MetalogEntry, Open, ShardEnd, decode, encode

INCARNATION = "000102030405060708090a0b0c0d0e0f"
ENTRY = MetalogEntry(
    start_pos=5,
    end_pos=9,
    time_ms=1_000,
    shards=(ShardEnd(0, 7, 2), ShardEnd(3, 2, 1)),
    commands=(Open(3, INCARNATION, 77), Close(0)),
)
GOLDEN = (
    "01" + "00" * 7 + "0200000002000000"
    "05000000000000000900000000000000e803000000000000"
    "000000000000000007000000000000000200000000000000"
    "030000000000000002000000000000000100000000000000"
    "010000002000000003000000000000004d00000000000000" + INCARNATION
    + "02000000080000000000000000000000"
)  # fmt: skip


def test_bytes_are_as_the_table_says() -> None:
    assert encode(ENTRY).hex() == GOLDEN
    assert decode(bytes.fromhex(GOLDEN)) == ENTRY


numbers = st.integers(0, limits.POSITION_MAX)
incarnations = st.binary(min_size=16, max_size=16).map(bytes.hex)


@st.composite
def entries(draw: st.DrawFn) -> MetalogEntry:
    start, end = sorted((draw(numbers), draw(numbers)))
    shards = sorted(draw(st.sets(st.integers(0, 2**32 - 1), max_size=5)))
    ends = tuple(ShardEnd(shard, draw(numbers), draw(st.integers(1, limits.POSITION_MAX))) for shard in shards)
    command = st.one_of(
        st.builds(Open, st.integers(0, 2**32 - 1), incarnations, st.integers(0, 2**63 - 1)),
        st.builds(Close, st.integers(0, 2**32 - 1)),
    )
    return MetalogEntry(start, end, draw(st.integers(0, 2**62)), ends, tuple(draw(st.lists(command, max_size=4))))


@given(entries())
def test_round_trip(entry: MetalogEntry) -> None:
    data = encode(entry)
    assert decode(data) == entry
    assert decode(memoryview(bytearray(data))) == entry


@given(entries(), st.data())
def test_every_cut_or_added_byte_is_refused(entry: MetalogEntry, data: st.DataObject) -> None:
    encoded = encode(entry)
    length = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(ProtocolError):
        decode(encoded[:length])
    with pytest.raises(ProtocolError):
        decode(encoded + b"\0")


@given(st.binary(max_size=200), st.booleans())
def test_garbage_is_refused_by_name(garbage: bytes, with_version: bool) -> None:
    try:
        decode(b"\x01" + b"\0" * 7 + garbage if with_version else garbage)
    except ProtocolError:
        pass


@pytest.mark.parametrize("kind", [0, 3, 4, 5, 6, 255])
def test_a_command_it_does_not_know_is_a_version_it_does_not_know(kind: int) -> None:
    data = bytearray(encode(MetalogEntry(0, 0, 0, (ShardEnd(0, 0, 0),), (Close(0),))))
    data[40 + 24] = kind
    with pytest.raises(VersionMismatch, match="upgrade"):
        decode(data)


def test_another_version_is_refused() -> None:
    data = bytearray(encode(ENTRY))
    data[0] = 2
    with pytest.raises(VersionMismatch) as caught:
        decode(data)
    assert (caught.value.expected, caught.value.found) == (1, 2)


@pytest.mark.parametrize(
    "shards",
    [
        (ShardEnd(1, 0, 0), ShardEnd(1, 0, 0)),
        (ShardEnd(2, 0, 0), ShardEnd(1, 0, 0)),
        (ShardEnd(1, 3, 0),),
        (ShardEnd(1, limits.POSITION_MAX + 1, 1),),
    ],
)
def test_shards_that_cannot_be(shards: tuple[ShardEnd, ...]) -> None:
    with pytest.raises(ProtocolError):
        decode(encode(MetalogEntry(0, 0, 0, shards)))


def test_huge_counts_are_refused_before_anything_is_made() -> None:
    data = bytearray(encode(MetalogEntry(0, 0, 0, ())))
    data[8:12] = b"\xff\xff\xff\xff"
    with pytest.raises(ProtocolError, match="at most"):
        decode(data)
    data[8:12] = (50_000).to_bytes(4, "little")
    with pytest.raises(ProtocolError, match="cannot hold"):
        decode(data)
