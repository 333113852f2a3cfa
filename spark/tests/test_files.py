"""One contract for files in memory and for those of fsspec."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fsspec", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)

from boki_spark.faults import ClusterAway, ColdMissing, OffloadRefused
from boki_spark.files import Files, MemoryFiles, OpenFiles


@pytest.fixture(params=["memory", "fsspec"])
def files(request: pytest.FixtureRequest) -> Files:
    return MemoryFiles() if request.param == "memory" else OpenFiles()


async def test_a_file_is_made_once_read_listed_and_deleted(files: Files, tmp_path: Path) -> None:
    root = f"file://{tmp_path}/cold"
    assert await files.list(root) == []
    await files.create(f"{root}/b/two", b"2" * 1000)
    await files.create(f"{root}/a/one", b"")
    assert await files.read(f"{root}/b/two") == b"2" * 1000 and await files.read(f"{root}/a/one") == b""
    assert await files.list(root) == [f"{root}/a/one", f"{root}/b/two"]
    assert await files.list(f"{root}/a") == [f"{root}/a/one"]
    with pytest.raises(OffloadRefused, match="never used again"):
        await files.create(f"{root}/a/one", b"other")
    assert await files.read(f"{root}/a/one") == b""
    await files.delete(f"{root}/a/one")
    await files.delete(f"{root}/a/one")
    with pytest.raises(ColdMissing, match=r"^\[BOKI_COLD_MISSING\]"):
        await files.read(f"{root}/a/one")
    assert await files.list(root) == [f"{root}/b/two"]


async def test_a_file_system_that_is_not_known_is_told() -> None:
    with pytest.raises(ClusterAway, match="cannot be used"):
        await OpenFiles().read("nosuch://x/y")
