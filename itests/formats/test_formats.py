"""Data that earlier versions wrote is read, and written on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import boki
from boki_metalog.entries.metalog_entry import (
    Carried,
    Close,
    Expire,
    Lost,
    MetalogEntry,
    Open,
    ShardEnd,
    Trim,
    decode,
    encode,
)
from itests.formats.recording import FOLDER, TAGS, everything, running, unpack

ARCHIVES = sorted(FOLDER.glob("*.tar.zst"))


def test_there_is_something_recorded() -> None:
    assert ARCHIVES


@pytest.mark.processes
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.zst"))
async def test_what_an_earlier_version_wrote_is_read_and_written_on(archive: Path, tmp_path: Path) -> None:
    expected = json.loads((FOLDER / archive.name.replace(".tar.zst", ".json")).read_text())
    data = unpack(archive, tmp_path)
    for _ in range(2):  # as it was, and after this version checkpointed it
        async with running(data) as url, boki.connect(url) as client:
            assert await everything(client) == expected
            for name, rows in expected.items():
                for tag in TAGS:
                    found = [record.seqnum async for record in client.book(name).read(tag)]
                    assert found == [seqnum for seqnum, tags, _ in rows if tag in tags]
                last = await client.book(name).append(b"later", tags=["a"], expect={"a": newest(rows)})
                assert last > rows[-1][0]
                rows.append([last, ["a"], "later"])


METALOG_ENTRIES = {
    "every kind of command": MetalogEntry(
        5,
        9,
        1_767_225_600_000,
        (ShardEnd(0, 7, 2), ShardEnd(3, 2, 1)),
        (
            Open(3, "000102030405060708090a0b0c0d0e0f", 77),
            Close(0),
            Trim(2**64 - 1, ((0, 2**35 + 4), (2**64 - 2, 2**63 - 1)), True),
            Trim(11, ((7, 9),), False),
            Expire(12, bytes(range(16)), 1_024, for_good=False),
            Lost(6, 2, 40, 44, b'{"why":"all copies are gone"}'),
        ),
    ),
    "a barrier": MetalogEntry(9, 9, 1_767_225_600_001, (ShardEnd(3, 2, 1),)),
}


CARRYING_ENTRIES = {
    "two carried entries": MetalogEntry(
        9,
        12,
        1_767_225_600_002,
        (ShardEnd(3, 3, 2), ShardEnd(4, 2, 2)),
        (),
        (Carried(3, b"twelve bytes"), Carried(4, b"x")),
    ),
    "a carried entry and a command": MetalogEntry(
        12, 13, 1_767_225_600_003, (ShardEnd(4, 3, 3),), (Close(4),), (Carried(4, bytes(range(8))),)
    ),
}


@pytest.mark.parametrize(
    ("version", "name"), [*((1, name) for name in METALOG_ENTRIES), *((2, name) for name in CARRYING_ENTRIES)]
)
def test_metalog_entries_are_read_and_written_as_they_were(version: int, name: str) -> None:
    recorded = json.loads((FOLDER / f"metalog-entry-{version}.json").read_text())
    entry = (METALOG_ENTRIES | CARRYING_ENTRIES)[name]
    assert decode(bytes.fromhex(recorded[name])) == entry
    assert encode(entry).hex() == recorded[name]


def newest(rows: list[list[Any]]) -> int:
    """The newest record of the stream a."""
    return next(int(seqnum) for seqnum, tags, _ in reversed(rows) if "a" in tags)
