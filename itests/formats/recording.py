"""A data directory of `boki dev` as it lay on the disk after kill -9, with what was in it: every format of one version at once.

    python -m itests.formats.recording NAME        # writes itests/formats/NAME.tar.zst and NAME.json

Recorded are bookies (journal, entry log, index, checkpoint mark, identity), the metadata tree, ledger metadata, view, term
records, metalog entries and record batches, over three terms. Never record over an old one: what it shows is that data of
then is read now.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import zstandard

import boki
from boki_common.errors import Conflict
from itests.support.processes import running as boki_process

FOLDER: Final = Path(__file__).parent
BOOKS: Final = ("orders", "users")
TAGS: Final = ("a", "b", "c")


@asynccontextmanager
async def running(data: Path) -> AsyncIterator[str]:
    """`boki dev` on a directory, ended by kill -9; yields its URL."""
    async with boki_process("dev", "--data", data, "--listen", "127.0.0.1:0", log=data.with_suffix(".log")) as dev:
        try:
            yield dev.url
        finally:
            dev.process.kill()


async def everything(client: Any) -> dict[str, list[list[Any]]]:
    """Per book: seqnum, tags and data of every record, in order."""
    return {
        name: [[record.seqnum, list(record.tags), record.data.decode()] async for record in client.book(name).read()]
        for name in BOOKS
    }


async def _write(client: Any, round_number: int) -> None:
    for name in BOOKS:
        book = client.book(name)
        rows = [
            (f"{name} {round_number} {number}".encode(), [TAGS[number % 3], TAGS[(number + 1) % 3]])
            for number in range(300)
        ]
        await book.append_many(rows)
        newest = await book.check_tail("a")
        await book.append(b"conditional", tags=["a"], expect={"a": newest.seqnum})
        try:
            await book.append(b"loses", tags=["a"], expect={"a": newest.seqnum})
        except Conflict:
            continue
        raise AssertionError("the second of two appends under one condition was let through")


async def record(name: str) -> None:
    """Writes the archive and what it holds."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        held: dict[str, list[list[Any]]] = {}
        for round_number in range(3):
            async with running(data) as url, boki.connect(url) as client:
                await _write(client, round_number)
                held = await everything(client)
        smallest = zstandard.ZstdCompressor(level=19)
        with (
            zstandard.open(FOLDER / f"{name}.tar.zst", "wb", cctx=smallest) as packed,
            tarfile.open(fileobj=packed, mode="w|") as archive,
        ):
            archive.add(data, arcname="data")
        (FOLDER / f"{name}.json").write_text(json.dumps(held, separators=(",", ":")) + "\n")


_EXTRACTION: Final[dict[str, Any]] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Patch releases of Python 3.11 before 3.11.4 know no filters."""


def unpack(archive: Path, folder: Path) -> Path:
    """The recorded data directory, in `folder`."""
    with zstandard.open(archive, "rb") as packed, tarfile.open(fileobj=packed, mode="r|") as members:
        members.extractall(folder, **_EXTRACTION)
    return folder / "data"


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1]))
