"""Messages of the sequencer: round trips, and garbage by name."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common import limits
from boki_common.cluster_token import NO_TOKEN
from boki_common.errors import InvalidArgument, ProtocolError, VersionMismatch
from boki_common.ids import Position
from boki_common.runtime.ports import Buffer
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.entries.metalog_entry import Close, Expire, Lost, Open, ShardEnd, Trim, encode_command
from boki_metalog.entries.progress import Order

ENGINE = "0f" * 16
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)


def view(*buffers: Buffer) -> memoryview:
    return memoryview(b"".join(buffers))


@given(u32, st.dictionaries(u32, st.tuples(u64, u64), max_size=5))
def test_reports(term: int, ends: dict[int, tuple[int, int]]) -> None:
    body = view(protocol.encode_report(term, ends))
    assert protocol.decode_report(body) == (term, tuple(ShardEnd(shard, *end) for shard, end in sorted(ends.items())))
    for wrong in (body[:-1], view(body, b"\0"), view()):
        with pytest.raises(ProtocolError):
            protocol.decode_report(wrong)


@given(u32, u64, st.lists(st.binary(max_size=20), max_size=5))
def test_entries(term: int, first: int, payloads: list[bytes]) -> None:
    body = view(*protocol.encode_entries(term, first, payloads))
    decoded = protocol.decode_entries(body)
    assert (decoded.term, decoded.first, [bytes(one) for one in decoded.payloads]) == (term, first, payloads)
    for wrong in (body[:-1], view(body, b"\0")):
        with pytest.raises(ProtocolError):
            protocol.decode_entries(wrong)


@given(st.binary(max_size=60))
def test_garbage_is_a_named_error(garbage: bytes) -> None:
    for decode in (
        protocol.decode_hello,
        protocol.decode_welcome,
        protocol.decode_open,
        protocol.decode_shard,
        protocol.decode_report,
        protocol.decode_carry,
        protocol.decode_close,
        protocol.decode_subscribe,
        protocol.decode_subscribed,
        protocol.decode_entries,
        protocol.decode_term,
        protocol.decode_order,
        protocol.decode_position,
    ):
        try:
            decode(memoryview(garbage))
        except (ProtocolError, InvalidArgument):
            continue


@given(u32, u32, u64, u64, st.binary(min_size=1, max_size=20))
def test_what_is_to_be_carried(term: int, shard: int, records_end: int, entries_end: int, entry: bytes) -> None:
    body = view(protocol.encode_carry(term, shard, records_end, entries_end), entry)
    assert protocol.decode_carry(body) == (term, shard, records_end, entries_end, entry)


def test_what_is_to_be_carried_has_bytes_and_not_too_many() -> None:
    head = protocol.encode_carry(1, 2, 3, 4)
    assert protocol.decode_carry(view(head, bytes(limits.CARRIED_ENTRY_BYTES))).entries_end == 4
    for wrong in (view(), view(head[:-1]), view(head), view(head, bytes(limits.CARRIED_ENTRY_BYTES + 1))):
        with pytest.raises(ProtocolError, match="to carry"):
            protocol.decode_carry(wrong)


def test_the_bytes_of_what_is_to_be_carried_are_as_the_table_says() -> None:
    expected = "07000000" + "03000000" + "0900000000000000" + "0200000000000000"
    assert protocol.encode_carry(7, 3, 9, 2).hex() == expected and protocol.OP_CARRY == 14


COMMANDS: tuple[Order, ...] = (Trim(1, ((0, 9), (7, 3)), True), Expire(2, bytes(16), 4), Lost(1, 2, 3, 4, b"{}"))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_orders(command: Order) -> None:
    body = view(protocol.encode_order(7, command))
    assert protocol.decode_order(body) == (7, command)
    for wrong in (body[:-1], view(body, bytes(8)), view(body[:8]), view()):
        with pytest.raises(ProtocolError):
            protocol.decode_order(wrong)


def test_what_cannot_be_ordered_by_name() -> None:
    for command in (Close(3), Open(3, ENGINE, 4)):
        with pytest.raises(ProtocolError, match="TRIM"):
            protocol.decode_order(view(protocol.encode_term(7), encode_command(command)))
    with pytest.raises(InvalidArgument):
        protocol.encode_order(7, Trim(1, (), False))


def test_positions() -> None:
    body = view(protocol.encode_position(Position(7, 2**40)))
    assert protocol.decode_position(body) == Position(7, 2**40)
    with pytest.raises(ProtocolError):
        protocol.decode_position(body[:-1])


def test_huge_counts() -> None:
    with pytest.raises(ProtocolError, match="cannot hold"):
        protocol.decode_report(view(b"\0\0\0\0\xff\xff\xff\xff"))
    with pytest.raises(ProtocolError, match="cannot hold"):
        protocol.decode_entries(view(b"\0\0\0\0\xff\xff\xff\xff", bytes(8)))
    with pytest.raises(ProtocolError, match="ends after"):
        protocol.decode_entries(view(b"\0\0\0\0\1\0\0\0", bytes(8), b"\xff\xff\xff\xff"))


def test_the_rest() -> None:
    assert protocol.decode_open(view(protocol.encode_open(7, ENGINE, 9))) == (7, ENGINE, 9)
    assert protocol.decode_close(view(protocol.encode_close(7, 3))) == (7, 3)
    assert protocol.decode_shard(view(protocol.encode_shard(3))) == 3
    assert protocol.decode_subscribe(view(protocol.encode_subscribe(7, 2**40))) == (7, 2**40)
    assert protocol.decode_subscribed(view(protocol.encode_subscribed(4, 5))) == (4, 5)
    assert protocol.decode_hello(view(protocol.encode_hello([ENGINE], token=NO_TOKEN, role="engine"))).incarnations == (
        ENGINE,
    )
    welcome = protocol.Welcome(1, ENGINE, 0, 7, True, carries=True)
    assert protocol.decode_welcome(view(protocol.encode_welcome(welcome))) == welcome


def test_a_participant_of_another_version() -> None:
    with pytest.raises(VersionMismatch, match="upgrade"):
        protocol.decode_hello(view(b"\x82\xa8versions\x91\x02\xacincarnations\x90"))


@pytest.mark.parametrize("incarnation", ["", "xyz", "0F" * 16, "0f" * 15])
def test_incarnations_are_32_digits(incarnation: str) -> None:
    with pytest.raises(InvalidArgument):
        protocol.encode_open(1, incarnation, 1)


def test_one_shard_and_one_entry_are_written_as_several_are() -> None:
    one = protocol.encode_report_of_one(3, 4, 9, 2)
    assert one == protocol.encode_report(3, {4: (9, 2)})
    assert protocol.decode_report(memoryview(one)) == (3, (ShardEnd(4, 9, 2),))
    with pytest.raises(ProtocolError, match="cannot hold 2 shards"):
        protocol.decode_report(memoryview(one[:4] + b"\2" + one[5:]))
    assert protocol.encode_entry(3, 7, b"cut") == b"".join(protocol.encode_entries(3, 7, (b"cut",)))


def test_a_sequencer_that_does_not_say_whether_it_carries_does_not() -> None:
    old = msgspec.msgpack.encode({"version": 1, "incarnation": ENGINE, "log": 0, "term": 7, "serving": True})
    assert protocol.decode_welcome(view(old)) == protocol.Welcome(1, ENGINE, 0, 7, True, carries=False)


def test_a_hello_that_is_nested_too_deeply_is_refused_as_any_other() -> None:
    with pytest.raises(ProtocolError, match="HELLO"):
        protocol.decode_hello(view(b"\x81\xa4more" + b"\x91" * 20_000))
