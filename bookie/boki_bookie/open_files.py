"""A file of a disk that is open for a few statements."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from boki_common.runtime.ports import Disk, DiskFile


@asynccontextmanager
async def opened(disk: Disk, name: str, *, create: bool = False) -> AsyncIterator[DiskFile]:
    """Raises as `Disk.open`."""
    file = await disk.open(name, create=create)
    try:
        yield file
    finally:
        await file.close()
