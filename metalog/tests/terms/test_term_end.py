"""Where a term ends when its last entry cannot be read: nothing is made up; a person may say that it ends before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from boki_common.errors import DigestMismatch, EntryUnknown, InvalidArgument, NoSuchEntry, ProtocolError
from boki_metalog.entries.metalog_entry import (
    Carried,
    Close,
    EntryHead,
    MetalogEntry,
    Open,
    ShardEnd,
    decode,
    decode_head,
    encode,
)
from boki_metalog.errors import MetalogUnreadable
from boki_metalog.terms.term_end import READ_ENTRIES, Decision, given_up, last_of, readable_of

A = "aa" * 16
FIRST = MetalogEntry(0, 0, 700, (ShardEnd(0, 0, 0),), (Open(0, A, 90),))
SECOND = MetalogEntry(0, 5, 800, (ShardEnd(0, 5, 2),))
THIRD = MetalogEntry(5, 9, 900, (ShardEnd(0, 9, 3),), (Close(0),))
GOOD = [encode(FIRST), encode(SECOND), encode(THIRD)]
WHY = Decision(2, "a broken machine", 1_000)


class Reader:
    """A closed ledger with these entries; an entry may be an error instead."""

    closed = True

    def __init__(self, entries: Sequence[bytes | Exception]) -> None:
        self.entries = entries
        self.last_entry = len(entries) - 1

    async def read(self, first: int, last: int) -> list[memoryview]:
        found = []
        for entry in self.entries[first : last + 1]:
            if isinstance(entry, Exception):
                raise entry
            found.append(memoryview(entry))
        return found

    async def read_unconfirmed(self, first: int, last: int) -> list[memoryview]:
        raise AssertionError("what is closed is confirmed")

    def confirm(self, entry_id: int) -> None:
        raise AssertionError("what is closed is confirmed")

    async def close(self) -> None:
        raise AssertionError("whoever opened it closes it")


def of_later_version(entry: MetalogEntry) -> bytes:
    """With a command of a kind that only a later program knows."""
    data = encode(MetalogEntry(entry.start_pos, entry.end_pos, entry.time_ms, entry.shards, (Close(0),)))
    return data[:-16] + bytes([99]) + data[-15:]


async def test_the_last_entry_says_where_the_term_ends() -> None:
    assert await last_of(Reader(GOOD), term=1, start_time_ms=5) == EntryHead(5, 9, 900)
    assert await last_of(Reader([]), term=1, start_time_ms=5) is None


async def test_commands_of_a_later_version_are_not_needed_for_that() -> None:
    for entries, head in (
        ([*GOOD[:2], of_later_version(THIRD)], EntryHead(5, 9, 900)),
        ([of_later_version(FIRST)], EntryHead(0, 0, 700)),
        ([GOOD[0], of_later_version(SECOND), of_later_version(THIRD)], EntryHead(5, 9, 900)),
    ):
        with pytest.raises(ProtocolError, match="upgrade"):
            decode(entries[-1])
        assert await last_of(Reader(entries), term=1, start_time_ms=700) == head


@pytest.mark.parametrize(
    "last",
    [
        b"",
        b"garbage",
        bytes([99]) + GOOD[2][1:],
        GOOD[2][:-1],
        GOOD[2] + b"\0",
        of_later_version(MetalogEntry(6, 9, 900, THIRD.shards)),
        of_later_version(MetalogEntry(5, 9, 799, THIRD.shards)),
        DigestMismatch("all copies are damaged"),
        NoSuchEntry("nobody has it"),
    ],
)
async def test_what_cannot_be_known_is_not_made_up(last: bytes | Exception) -> None:
    """A body that cannot be is no reason to believe its head, and what does not go on from the entry before is none either."""
    with pytest.raises(MetalogUnreadable, match="boki log give-up 7 2") as caught:
        await last_of(Reader([*GOOD[:2], last]), term=7, start_time_ms=5)
    assert not caught.value.retryable


async def test_bookies_that_do_not_answer_say_nothing_of_an_entry() -> None:
    reader = Reader([*GOOD[:2], EntryUnknown("bookies are down")])
    for refused in (last_of(reader, term=1, start_time_ms=5), given_up(reader, WHY, term=1)):
        with pytest.raises(EntryUnknown):
            await refused


def test_the_head_is_what_the_entry_says(body_of: Any) -> None:
    carrying = MetalogEntry(5, 9, 900, (ShardEnd(0, 9, 3),), (Close(0),), (Carried(0, body_of(1, 0, 5, 4)),))
    for entry in (FIRST, SECOND, THIRD, carrying):
        assert decode_head(encode(entry)) == (entry.start_pos, entry.end_pos, entry.time_ms)
    with pytest.raises(ProtocolError, match="positions in order"):
        decode_head(GOOD[2][:16] + GOOD[2][24:32] + GOOD[2][16:24] + GOOD[2][32:])


@pytest.mark.parametrize("bad", [b"garbage", encode(SECOND), DigestMismatch("damaged"), NoSuchEntry("nobody has it")])
async def test_what_comes_before_the_first_that_cannot_be_applied_remains(bad: bytes | Exception) -> None:
    many = [GOOD[0]] + [
        encode(MetalogEntry(at, at + 1, 700, (ShardEnd(0, at + 1, at + 1),))) for at in range(READ_ENTRIES + 9)
    ]
    at = READ_ENTRIES + 2
    whole = await readable_of(Reader(many), len(many))
    assert (whole.entries, whole.fault) == (len(many), None)
    entries = [*many[:at], bad, *many[at + 1 :]]
    kept, gone = await given_up(Reader(entries), Decision(at, "why", 5), term=1)
    assert kept.entries == at and kept.last == decode(many[at - 1])
    assert (gone.first_entry, gone.last_entry, gone.reason, gone.time_ms) == (at, len(many) - 1, "why", 5)
    assert type(kept.fault).__name__ in gone.fault


@pytest.mark.parametrize(
    ("entries", "entry", "match"),
    [
        (GOOD, 2, "all 3 entries .* can be read"),
        ([GOOD[0], b"garbage", GOOD[2]], 2, "entry 1 is the first"),
        ([*GOOD[:2], b"garbage"], 1, "entry 2 is the first"),
        ([*GOOD[:2], of_later_version(THIRD)], 2, "--later-version"),
    ],
)
async def test_nothing_is_given_up_but_the_first_that_cannot_be_read(
    entries: Sequence[bytes], entry: int, match: str
) -> None:
    with pytest.raises(InvalidArgument, match=match):
        await given_up(Reader(entries), Decision(entry, "why", 5), term=1)


async def test_what_no_later_program_reads_either_may_be_given_up() -> None:
    _, gone = await given_up(
        Reader([*GOOD[:2], of_later_version(THIRD)]), Decision(2, "x" * 2_000, 5, of_later_version=True), term=1
    )
    assert gone.fault.startswith("VersionMismatch") and len(gone.reason) == 1_000
