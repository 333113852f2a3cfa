"""A file that is only there to be given up: on a full disk its space is what noting down deletions and moves takes.

Without it a bookie whose disk is full to the last byte could never free anything, because every removal of a file must first
be written to the index. The file is really written, with zeros: a hole would reserve nothing. It outlives the process: one
that starts on a full disk finds what an earlier one left.
"""

from __future__ import annotations

from typing import Final

from boki_bookie.open_files import opened
from boki_common.errors import DiskFull
from boki_common.limits import KIB
from boki_common.runtime.ports import Disk

NAME: Final = "RESERVE"
_FILL_BYTES: Final = 256 * KIB


class DiskReserve:
    """See the module. `find` at start, `fill` when there is space, `spend` when there is none."""

    def __init__(self, disk: Disk, size_bytes: int) -> None:
        self.reserved_bytes = 0
        self._disk = disk
        self._size_bytes = size_bytes

    async def find(self) -> None:
        """Takes note of what an earlier process left. Raises DiskFailed."""
        if await self._disk.exists(NAME):
            async with opened(self._disk, NAME) as file:
                self.reserved_bytes = await file.size()

    async def fill(self) -> None:
        """Makes the file, if there is space for it. Raises DiskFailed."""
        if self.reserved_bytes == self._size_bytes:
            return
        async with opened(self._disk, NAME, create=True) as file:
            try:
                if await file.size() != self._size_bytes:
                    await file.truncate(0)
                    zeros = memoryview(bytes(min(_FILL_BYTES, self._size_bytes)))
                    for offset in range(0, self._size_bytes, _FILL_BYTES):
                        await file.write(offset, [zeros[: self._size_bytes - offset]], durable=False)
                    await file.sync()
                self.reserved_bytes = self._size_bytes
            except DiskFull:
                await file.truncate(0)
                self.reserved_bytes = 0

    async def spend(self) -> bool:
        """Gives the space back; False when there was none. Raises DiskFailed."""
        if not self.reserved_bytes:
            return False
        self.reserved_bytes = 0
        await self._disk.remove(NAME)
        return True
