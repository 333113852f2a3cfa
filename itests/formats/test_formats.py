"""Data that earlier versions wrote is read, and written on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import boki
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


def newest(rows: list[list[Any]]) -> int:
    """The newest record of the stream a."""
    return next(int(seqnum) for seqnum, tags, _ in reversed(rows) if "a" in tags)
