"""A file that is open for a few statements is closed after them, whatever became of them."""

from __future__ import annotations

import pytest

from boki_bookie.open_files import opened
from boki_common.errors import ClosedError, CorruptData
from boki_common.runtime.memory_disk import MemoryDisk
from boki_common.runtime.ports import DiskFile


async def test_a_file_is_closed_also_when_its_use_fails(disk: MemoryDisk) -> None:
    files: list[DiskFile] = []
    with pytest.raises(LookupError):
        async with opened(disk, "a file", create=True) as file:
            files.append(file)
            raise LookupError
    with pytest.raises(ClosedError):
        await files[0].size()
    with pytest.raises(CorruptData):
        async with opened(disk, "another"):
            raise AssertionError("it is not there")
