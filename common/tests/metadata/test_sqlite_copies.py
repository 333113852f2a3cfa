"""Copies of a SQLite metadata file: read as they are, and rid of the processes that they were copied with."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from boki_common.errors import CorruptData, MetadataUnavailable, SettingsError
from boki_common.metadata.sqlite import SqliteStore
from boki_common.metadata.sqlite_copies import end_sessions, load_copy


async def test_a_copy_has_what_lasts_and_ends_the_sessions_of_the_original(tmp_path: Path) -> None:
    original, copy = tmp_path / "metadata.db", tmp_path / "copy.db"
    store = SqliteStore(original)
    await store.start()
    try:
        await store.create("/a", b"1")
        await store.create("/a/b", b"2")
        await store.create("/a/who", b"here", ephemeral=True)
        await asyncio.to_thread(shutil.copy, original, copy)
        tree, sessions = await asyncio.to_thread(load_copy, copy)
        assert (tree.children("/a"), tree.get("/a/b").value, sessions) == (["b"], b"2", 1)
        ended = [await asyncio.to_thread(end_sessions, copy) for _ in range(2)]
        assert ended == [1, 0]
        assert [(await asyncio.to_thread(load_copy, path))[1] for path in (copy, original)] == [0, 1]
        other = SqliteStore(copy)
        await other.start()
        assert await other.children("/a") == ["b"], "at once, although the process of the original is alive"
        await other.close()
        assert await store.children("/a") == ["b", "who"]
    finally:
        await store.close()


def test_what_is_no_copy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        load_copy(tmp_path / "absent.db")
    (tmp_path / "text.db").write_bytes(b"text" * 2000)
    with pytest.raises(CorruptData):
        load_copy(tmp_path / "text.db")
    with pytest.raises((CorruptData, MetadataUnavailable)):
        end_sessions(tmp_path / "text.db")
