"""A file that is open for a few statements is closed after them, whatever became of them."""

from __future__ import annotations

import pytest

from boki_bookie.open_files import opened
from boki_common.errors import ClosedError, CorruptData
from boki_common.runtime.memory_disk import MemoryDisk


async def test_a_file_is_closed_also_when_its_use_fails(disk: MemoryDisk) -> None:
    with pytest.raises(LookupError):
        async with opened(disk, "a file", create=True) as file:
            raise LookupError
    with pytest.raises(ClosedError):
        await file.size()
    with pytest.raises(CorruptData):
        async with opened(disk, "another"):
            raise AssertionError("it is not there")
