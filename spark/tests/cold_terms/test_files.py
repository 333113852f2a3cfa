"""The contract of the file port, for files in memory and files of fsspec."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("fsspec", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)

from boki_spark.cold_terms.files import Files, FsspecFiles, MemoryFiles
from boki_spark.errors import ClusterAway, ColdMissing, OffloadRefused


@pytest.fixture(params=["memory", "fsspec"])
def files(request: pytest.FixtureRequest) -> Files:
    return MemoryFiles() if request.param == "memory" else FsspecFiles()


async def test_a_file_is_made_once_read_listed_and_deleted(files: Files, tmp_path: Path) -> None:
    root = f"file://{tmp_path}/cold"
    assert await files.list(root) == []
    await files.create(f"{root}/b/two", b"2" * 1000)
    await files.create(f"{root}/a/one", b"")
    assert await files.read(f"{root}/b/two") == b"2" * 1000 and await files.read(f"{root}/a/one") == b""
    assert (
        await files.read_part(f"{root}/b/two", 990, 2000) == b"2" * 10
        and await files.read_part(f"{root}/a/one", 0, 5) == b""
    )
    assert await files.list(root) == [f"{root}/a/one", f"{root}/b/two"]
    await files.sync(root)
    assert await files.list(f"{root}/a") == [f"{root}/a/one"]
    with pytest.raises(OffloadRefused, match="never used again"):
        await files.create(f"{root}/a/one", b"other")
    assert await files.read(f"{root}/a/one") == b""
    await files.delete(f"{root}/a/one")
    await files.delete(f"{root}/a/one")
    with pytest.raises(ColdMissing, match=r"^\[BOKI_COLD_MISSING\]"):
        await files.read(f"{root}/a/one")
    with pytest.raises(ColdMissing):
        await files.read_part(f"{root}/a/one", 0, 5)
    assert await files.list(root) == [f"{root}/b/two"]


async def test_a_file_system_that_is_not_known_is_an_error() -> None:
    with pytest.raises(ClusterAway, match="cannot be used"):
        await FsspecFiles().read("nosuch://x/y")


async def test_settling_flushes_every_file_and_every_folder_that_leads_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    real = os.fsync

    def fsync(number: int) -> None:
        flushed.append(str(Path(f"/proc/self/fd/{number}").resolve()))
        real(number)

    monkeypatch.setattr(os, "fsync", fsync)
    files = FsspecFiles()
    await files.create(f"file://{tmp_path}/cold/term-1/v0/slice", b"1")
    await files.create(f"file://{tmp_path}/cold/term-1/v0/manifest", b"2")
    await files.sync(f"file://{tmp_path}/cold/term-1/v0")
    folders = [tmp_path / "cold" / "term-1" / "v0", tmp_path / "cold" / "term-1", tmp_path / "cold", tmp_path]
    assert {str(folders[0] / "slice"), str(folders[0] / "manifest"), *map(str, folders)} <= set(flushed)
    assert flushed.index(str(folders[0] / "slice")) < flushed.index(str(folders[0])), "names behind what they name"
