"""The bytes of metalog entries: as the table says, and nothing else is read."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common import limits
from boki_common.errors import InvalidArgument, ProtocolError, VersionMismatch
from boki_metalog.entries.metalog_entry import (
    Carried,
    Close,
    Command,
    Expire,
    Lost,
    MetalogEntry,
    Open,
    ShardEnd,
    Trim,
    check_command,
    command_bytes,
    decode,
    decode_command,
    encode,
    encode_command,
)

INCARNATION = "000102030405060708090a0b0c0d0e0f"
ENTRY = MetalogEntry(
    start_pos=5,
    end_pos=9,
    time_ms=1_000,
    shards=(ShardEnd(0, 7, 2), ShardEnd(3, 2, 1)),
    commands=(Open(3, INCARNATION, 77), Close(0)),
    carried=(Carried(0, b"ten bytes!"), Carried(3, b"eight by")),
)
COUNTS = "0200000002000000"
SHARDS = (
    "05000000000000000900000000000000e803000000000000"
    "000000000000000007000000000000000200000000000000"
    "030000000000000002000000000000000100000000000000"
)
OPEN_AND_CLOSE = "010000002000000003000000000000004d00000000000000" + INCARNATION + "02000000080000000000000000000000"
TWO_CARRIED = "000000000a000000" + b"ten bytes!".hex() + "00" * 6 + "0300000008000000" + b"eight by".hex()
GOLDEN = "02000000" + "02000000" + COUNTS + SHARDS + TWO_CARRIED + OPEN_AND_CLOSE
GOLDEN_1 = "01" + "00" * 7 + COUNTS + SHARDS + OPEN_AND_CLOSE


def test_bytes_are_as_the_table_says() -> None:
    assert encode(ENTRY).hex() == GOLDEN
    assert decode(bytes.fromhex(GOLDEN)) == ENTRY


def test_what_carries_nothing_is_of_version_1() -> None:
    alone = msgspec.structs.replace(ENTRY, carried=())
    assert decode(bytes.fromhex(GOLDEN_1)) == alone
    assert encode(alone).hex() == GOLDEN_1
    with_a_count = bytearray.fromhex(GOLDEN_1)
    with_a_count[4] = 1
    assert decode(with_a_count) == alone, "version 1 had no count there"


WRITER = bytes(range(16))
COMMANDS: dict[str, tuple[Command, str]] = {
    "trim": (
        Trim(0x0102, ((0, 7), (2**64 - 2, 2**63 - 1)), True),
        "03000000" + "30000000" + "0201000000000000" + "02000000" + "01000000"
        + "0000000000000000" + "0700000000000000" + "feffffffffffffff" + "ffffffffffffff7f",
    ),
    "trim and forget": (
        Trim(0x0102, ((9, 7),), True, 1_767_225_600_000),
        "07000000" + "28000000" + "0201000000000000" + "01000000" + "00000000" + "00a8da769b010000"
        + "0900000000000000" + "0700000000000000",
    ),
    "expire": (
        Expire(2**64 - 1, WRITER, 9, for_good=False),
        "04000000" + "20000000" + "ffffffffffffffff" + "0900000000000000" + WRITER.hex(),
    ),
    "expire for good": (
        Expire(2**64 - 1, WRITER, 9),
        "06000000" + "20000000" + "ffffffffffffffff" + "0900000000000000" + WRITER.hex(),
    ),
    "lost": (
        Lost(7, 3, 2, 5, b'{"a":1}'),
        "05000000" + "28000000" + "07000000" + "03000000" + "0200000000000000" + "0500000000000000"
        + "07000000" + "00000000" + b'{"a":1}'.hex() + "00",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("command", "expected"), COMMANDS.values(), ids=list(COMMANDS))
def test_commands_are_as_the_table_says(command: Command, expected: str) -> None:
    """Recorded: what these bytes mean never changes."""
    assert encode_command(command).hex() == expected
    assert decode_command(bytes.fromhex(expected)) == command
    entry = MetalogEntry(5, 5, 1_000, (), (command, Close(3), command))
    assert decode(encode(entry)) == entry


numbers = st.integers(0, limits.POSITION_MAX)
u32, u64, i63 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**63 - 1)
writers = st.binary(min_size=16, max_size=16)
incarnations = writers.map(bytes.hex)
pairs = st.lists(st.tuples(st.integers(0, 2**64 - 2), i63), min_size=1, max_size=4).map(tuple)
trims = st.one_of(
    st.builds(Trim, u64, pairs, st.booleans(), st.none()),
    st.builds(Trim, u64, pairs, st.just(True), st.integers(1, 2**63 - 1)),
)
losts = st.builds(
    lambda term, shard, first, count, evidence, rows: Lost(term, shard, first, first + count, evidence, rows),
    st.integers(1, limits.TERM_MAX), u32, st.integers(0, 2**34), st.integers(1, 2**20), st.binary(max_size=20),
    st.booleans(),
)  # fmt: skip
commands = st.one_of(
    st.builds(Open, u32, incarnations, i63),
    st.builds(Close, u32),
    trims,
    st.builds(Expire, u64, writers, i63, st.booleans()),
    losts,
)


@st.composite
def entries(draw: st.DrawFn) -> MetalogEntry:
    start, end = sorted((draw(numbers), draw(numbers)))
    shards = sorted(draw(st.sets(st.integers(0, 2**32 - 1), max_size=5)))
    ends = tuple(ShardEnd(shard, draw(numbers), draw(st.integers(1, limits.POSITION_MAX))) for shard in shards)
    carried = tuple(Carried(shard, draw(st.binary(min_size=1, max_size=20))) for shard in shards if draw(st.booleans()))
    return MetalogEntry(
        start, end, draw(st.integers(0, 2**62)), ends, tuple(draw(st.lists(commands, max_size=4))), carried
    )


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


@given(commands)
def test_one_command_alone(command: Command) -> None:
    check_command(command)
    data = encode_command(command)
    assert len(data) == command_bytes(command) and len(data) % 8 == 0
    assert decode_command(data) == command
    for wrong in (data[:-1], data + bytes(8), data[: len(data) // 2], b""):
        with pytest.raises(ProtocolError):
            decode_command(wrong)


@given(commands, st.data())
def test_a_flipped_bit_is_refused_by_name_or_is_another_command(command: Command, data: st.DataObject) -> None:
    """No bit is without a meaning, but for the reserved ones of kinds and shards, which version 1 ignores."""
    encoded = encode_command(command)
    bit = data.draw(st.integers(0, 8 * len(encoded) - 1))
    ignored = {1, 2, 3} | ({12, 13, 14, 15} if isinstance(command, (Open, Close)) else set())
    flipped = bytearray(encoded)
    flipped[bit // 8] ^= 1 << bit % 8
    try:
        found = decode_command(flipped)
    except ProtocolError:
        return
    assert (found == command) == (bit // 8 in ignored)


IMPOSSIBLE = {
    "no pair": Trim(1, (), False),
    "too many pairs": Trim(1, ((1, 1),) * (limits.TRIM_PAIRS + 1), False),
    "no such tag": Trim(1, ((2**64 - 1, 1),), False),
    "no such seqnum": Trim(1, ((1, 2**63),), False),
    "no such book": Trim(2**64, ((1, 1),), False),
    "no such time": Trim(1, ((1, 1),), True, 0),
    "a time that nothing is forgotten by": Trim(1, ((1, 1),), False, 7),
    "short writer": Expire(1, bytes(15), 1),
    "long writer": Expire(1, bytes(17), 1),
    "no such number": Expire(1, bytes(16), -1),
    "no term": Lost(0, 1, 1, 2, b""),
    "no entries": Lost(1, 1, 2, 2, b""),
    "entries below 0": Lost(1, 1, -1, 2, b""),
    "no such shard": Lost(1, 2**32, 1, 2, b""),
    "too much evidence": Lost(1, 1, 1, 2, bytes(limits.LOST_EVIDENCE_BYTES + 1)),
    "no such shard to close": Close(-1),
    "no such ledger": Open(1, INCARNATION, 2**63),
}


@pytest.mark.parametrize("command", IMPOSSIBLE.values(), ids=list(IMPOSSIBLE))
def test_commands_that_cannot_be(command: Command) -> None:
    with pytest.raises(InvalidArgument):
        check_command(command)
    with pytest.raises(AssertionError):
        encode_command(command)


A_TRIM, A_LOST = Trim(1, ((1, 1),), False), Lost(1, 1, 2, 5, b"abcdefg")


@pytest.mark.parametrize(
    ("command", "offset", "value"),
    [
        (A_TRIM, 8 + 8, b"\0\0\0\0"), (A_TRIM, 8 + 8, b"\xff\xff\xff\xff"), (A_TRIM, 8 + 12, b"\2"), (A_TRIM, 8 + 23 + 8, b"\x80"),
        (A_LOST, 8, b"\0"), (A_LOST, 8 + 8, b"\6"), (A_LOST, 8 + 24, b"\6"), (A_LOST, 8 + 24, b"\xff\xff\xff\xff"),
        (A_LOST, 8 + 28, b"\2"), (A_LOST, 8 + 39, b"\1"),
    ],
    ids=[
        "no pairs", "more pairs than bytes", "unknown flag", "a seqnum over 63 bits",
        "term 0", "no entries", "evidence in the padding", "evidence beyond the end", "flags", "padding",
    ],
)  # fmt: skip
def test_counts_flags_numbers_and_paddings_of_commands_are_checked(command: Command, offset: int, value: bytes) -> None:
    data = bytearray(encode_command(command))
    data[offset : offset + len(value)] = value
    with pytest.raises(ProtocolError):
        decode_command(data)


@pytest.mark.parametrize("command", [Close(3), Open(3, INCARNATION, 7), Expire(1, WRITER, 9)])
def test_a_body_of_a_fixed_size_has_that_size(command: Command) -> None:
    data = bytearray(encode_command(command)) + bytes(8)
    data[4:8] = (len(data) - 8).to_bytes(4, "little")
    with pytest.raises(ProtocolError, match="expected"):
        decode_command(data)


def test_the_largest_entry_is_well_below_the_largest_of_a_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    trim = Trim(1, ((1, 1),) * limits.TRIM_PAIRS, False)
    fitting = limits.METALOG_COMMANDS_BYTES // command_bytes(trim)
    assert fitting >= 3, "the largest commands share entries too"
    shards = tuple(ShardEnd(shard, 1, 1) for shard in range(limits.TERM_SHARDS))
    entry = MetalogEntry(0, 0, 0, shards, (trim,) * fitting)
    assert len(encode(entry)) < limits.ENTRY_BYTES / 2
    with pytest.raises(AssertionError):
        encode(MetalogEntry(0, 0, 0, (), (trim,) * (fitting + 1)))
    monkeypatch.setattr(limits, "METALOG_COMMANDS_BYTES", 100)
    with pytest.raises(ProtocolError, match="at most 100"):
        decode(bytes.fromhex(GOLDEN) + encode_command(COMMANDS["trim"][0]))


@given(st.binary(max_size=200), st.booleans())
def test_garbage_is_refused_by_name(garbage: bytes, with_version: bool) -> None:
    try:
        decode(b"\x02\0\0\0" + garbage if with_version else garbage)
    except ProtocolError:
        pass


@pytest.mark.parametrize("kind", [0, 8, 255])
def test_a_command_it_does_not_know_is_a_version_it_does_not_know(kind: int) -> None:
    data = bytearray(encode(MetalogEntry(0, 0, 0, (ShardEnd(0, 0, 0),), (Close(0),))))
    data[40 + 24] = kind
    with pytest.raises(VersionMismatch, match="upgrade"):
        decode(data)


@pytest.mark.parametrize("version", [0, 3, 255])
def test_another_version_is_refused(version: int) -> None:
    data = bytearray(encode(ENTRY))
    data[0] = version
    with pytest.raises(VersionMismatch, match="version 2 or 1") as caught:
        decode(data)
    assert (caught.value.expected, caught.value.found) == (2, version)


CARRYING = MetalogEntry(0, 2, 0, (ShardEnd(1, 1, 1), ShardEnd(4, 1, 1)), (), (Carried(1, b"one"), Carried(4, b"four")))
FIRST_CARRIED = 40 + 2 * 24
"""Where it begins: shard, size, 3 bytes, 5 zeros; and the second one after it."""


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        (FIRST_CARRIED, b"\4"), (FIRST_CARRIED, b"\5"),
        (FIRST_CARRIED + 4, b"\0"), (FIRST_CARRIED + 4, b"\2"), (FIRST_CARRIED + 4, b"\x18"),
        (FIRST_CARRIED + 4, b"\x01\x10"), (FIRST_CARRIED + 4, b"\xff\xff\xff\xff"),
        (FIRST_CARRIED + 8 + 3, b"\1"), (FIRST_CARRIED + 8 + 7, b"\1"),
        (4, b"\1"), (4, b"\3"), (4, b"\x21"), (4, b"\xff\xff\xff\xff"),
    ],
    ids=[
        "the same shard twice", "descending shards",
        "no bytes", "its end in the padding", "all of the next one", "more than may be", "far beyond the end",
        "padding", "the end of the padding",
        "one fewer", "one more", "more than may be carried", "huge",
    ],
)  # fmt: skip
def test_lengths_counts_and_paddings_of_what_is_carried_are_checked(offset: int, value: bytes) -> None:
    data = bytearray(encode(CARRYING))
    assert decode(data) == CARRYING
    data[offset : offset + len(value)] = value
    with pytest.raises(ProtocolError):
        decode(data)


@given(entries(), st.data())
def test_a_flipped_bit_of_an_entry_is_refused_by_name_or_seen(entry: MetalogEntry, data: st.DataObject) -> None:
    """But for the reserved ones: of the head, of shards and of commands."""
    encoded = encode(msgspec.structs.replace(entry, commands=()))
    bit = data.draw(st.integers(0, 8 * len(encoded) - 1))
    at = bit // 8
    flipped = bytearray(encoded)
    flipped[at] ^= 1 << bit % 8
    unused = (1, 2, 3) if entry.carried else (1, 2, 3, 4, 5, 6, 7)
    reserved = at in unused or (40 <= at < 40 + 24 * len(entry.shards) and (at - 40) % 24 in (4, 5, 6, 7))
    try:
        found = decode(flipped)
    except ProtocolError:
        assert not reserved
        return
    assert (encode(found) == encoded) == reserved


def test_what_an_entry_carries_is_bounded() -> None:
    most = tuple(Carried(shard, bytes(limits.CARRIED_ENTRY_BYTES)) for shard in range(limits.CARRIED_ENTRIES))
    entry = MetalogEntry(0, 0, 0, (), (), most)
    assert decode(encode(entry)) == entry and len(encode(entry)) < limits.ENTRY_BYTES / 8
    for wrong in (
        (*most, Carried(limits.CARRIED_ENTRIES, b"x")),
        (Carried(0, b""),),
        (Carried(0, bytes(limits.CARRIED_ENTRY_BYTES + 1)),),
    ):
        with pytest.raises(AssertionError):
            encode(MetalogEntry(0, 0, 0, (), (), wrong))


@pytest.mark.parametrize(
    ("size", "there"), [(0, 0), (limits.CARRIED_ENTRY_BYTES + 8, limits.CARRIED_ENTRY_BYTES + 8), (16, 8)]
)
def test_the_size_of_what_is_carried_is_checked_against_what_is_there_and_may_be(size: int, there: int) -> None:
    alone = MetalogEntry(0, 1, 0, (ShardEnd(1, 1, 1),), (), (Carried(1, b"8 bytes."),))
    data = bytearray(encode(alone))[:-8] + bytes(there)
    data[-there - 4 : len(data) - there] = size.to_bytes(4, "little")
    with pytest.raises(ProtocolError, match=f"expected carried entries .* found one of {size} bytes of shard 1"):
        decode(data)


def test_a_count_of_what_is_carried_is_checked_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray(encode(CARRYING))
    data[4] = 20
    with pytest.raises(ProtocolError, match="cannot hold 2 shards, 20 carried entries"):
        decode(data)
    monkeypatch.setattr(limits, "CARRIED_ENTRIES", 1)
    data[4] = 2
    with pytest.raises(ProtocolError, match=r"at most .* 1 carried entries"):
        decode(data)


def test_the_bytes_of_commands_are_bounded_whatever_is_carried_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "METALOG_COMMANDS_BYTES", 60)
    assert decode(encode(msgspec.structs.replace(ENTRY, commands=(Close(0),)))).carried == ENTRY.carried
    with pytest.raises(ProtocolError, match="at most 60 bytes of commands"):
        decode(bytes.fromhex(GOLDEN) + encode_command(Close(1)))


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
