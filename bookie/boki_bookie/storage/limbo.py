"""The limbo of one store, on its disk and in memory: which ledgers it may not deny anything about (`limbo_rules`).

The file LIMBO is there from before the first byte is salvaged until everything is proven, and LIMBO.copy beside it: a disk
that has damaged files before must not lose this one. Each is replaced as a whole; where they differ, what either lists
counts. All integers are little endian:

    offset  size  field
    0       4     magic "BKL1"
    4       4     crc32c of the rest
    8       4     format version, 1
    12      4     zero
    16      16    bookie id
    32      8     number of ledgers
    40      8 n   the ledgers, ascending
    …       n     of each 1 for fenced, else 0

The fence of a ledger that the store knows is in its index as well; the list has those that it lost altogether.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final

import crc32c as _crc32c

from boki_bookie.formats.journal_format import other_version
from boki_bookie.storage.waiting_adds import Validate
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import CorruptData
from boki_common.runtime.ports import Disk

LIMBO_NAME: Final = "LIMBO"
COPY_NAME: Final = "LIMBO.copy"
FORMAT_VERSION: Final = 1

_MAGIC: Final = int.from_bytes(b"BKL1", "little")
_PREFIX: Final = Struct("<II")
_HEAD: Final = Struct("<I4x16sQ")
_HEADER_BYTES: Final = _PREFIX.size + _HEAD.size

assert sys.byteorder == "little", "the list is written as it lies in memory: Boki runs on little-endian machines"


class Limbo:
    """A store in limbo. Made by `begin` or `load`; over when `clear` returned True."""

    def __init__(self, disk: Disk, bookie_id: bytes, ledgers: Mapping[int, bool]) -> None:
        self.is_over = False
        self._disk = disk
        self._bookie_id = bookie_id
        self._ledgers = dict(ledgers)

    @classmethod
    async def begin(cls, disk: Disk, bookie_id: bytes, ledgers: Mapping[int, bool]) -> Limbo:
        """Durable when it returns: from now on every start is one in limbo. `ledgers`: all listed ones, and which are fenced."""
        limbo = cls(disk, bookie_id, {})
        await limbo._replace(ledgers)
        return limbo

    @classmethod
    async def load(cls, disk: Disk, bookie_id: bytes) -> Limbo | None:
        """What an earlier start left; None when this store is not in limbo. Raises CorruptData: neither of the files that there
        are can be read. VersionMismatch, DiskFailed."""
        lists: list[dict[int, bool]] = []
        damage: CorruptData | None = None
        for file in (LIMBO_NAME, COPY_NAME):
            if await disk.exists(file):
                try:
                    data = await disk.read_all(file)
                    lists.append(_decode(data, bookie_id=bookie_id, name=disk.describe(file)))
                except CorruptData as error:
                    damage = damage or error
        if not lists:
            if damage is not None:
                raise damage
            return None
        both = [*lists, *lists][:2]
        ledgers = {key: both[0].get(key, False) or both[1].get(key, False) for key in both[0] | both[1]}
        return cls(disk, bookie_id, ledgers)

    @property
    def ledgers(self) -> list[int]:
        """What is listed, ascending."""
        return sorted(self._ledgers)

    def doubts(self, ledger_id: int, *, validated: bool) -> bool:
        """Whether a negative about this ledger is *unknown*; `validated` is that of a ledger that is held, else False."""
        return not self.is_over and (not validated or ledger_id in self._ledgers)

    def fences(self, ledger_id: int) -> bool:
        """Whether normal adds are refused though the store knows nothing of it."""
        return self._ledgers.get(ledger_id, False)

    async def clear(self, ledgers: Iterable[int]) -> None:
        """There is proof that these are whole, closed or gone. Durable when it returns."""
        cleared = frozenset(ledgers)
        await self._replace({key: fenced for key, fenced in self._ledgers.items() if key not in cleared})

    async def list_more(self, ledgers: Mapping[int, bool]) -> None:
        """These are in doubt as well. Durable when it returns."""
        await self._replace({**self._ledgers, **ledgers})

    async def end(self) -> None:
        """Nothing is in doubt any more."""
        assert not self._ledgers, "limbo ends when nothing is listed"
        for file in (LIMBO_NAME, COPY_NAME):
            await self._disk.remove(file)
        self.is_over = True

    async def _replace(self, ledgers: Mapping[int, bool]) -> None:
        encoded = _encode(self._bookie_id, ledgers)
        for file in (LIMBO_NAME, COPY_NAME):
            await self._disk.replace_all(file, encoded)
        self._ledgers = dict(ledgers)


class LimboValidation:
    """First validation in front of a store in limbo: a listed, fenced ledger takes no normal add, whatever was lost."""

    def __init__(self, limbo: Limbo, validate: Validate) -> None:
        self._limbo = limbo
        self._validate = validate

    async def __call__(self, ledger_id: int) -> V2Status:
        if self._limbo.fences(ledger_id):
            return V2Status.FENCED
        return await self._validate(ledger_id)


def _encode(bookie_id: bytes, ledgers: Mapping[int, bool]) -> bytes:
    ordered = sorted(ledgers)
    flags = bytes(ledgers[ledger_id] for ledger_id in ordered)
    used = b"".join((_HEAD.pack(FORMAT_VERSION, bookie_id, len(ordered)), array("q", ordered).tobytes(), flags))
    return _PREFIX.pack(_MAGIC, _crc32c.crc32c(used)) + used


def _decode(data: bytes, *, bookie_id: bytes, name: str) -> dict[int, bool]:
    if len(data) < _HEADER_BYTES or _PREFIX.unpack_from(data)[0] != _MAGIC:
        raise _damaged(name, f"expected a list of ledgers in limbo, found another file of {len(data)} bytes")
    if _crc32c.crc32c(data[_PREFIX.size :]) != _PREFIX.unpack_from(data)[1]:
        raise _damaged(name, "the list of ledgers in limbo fails its checksum")
    version, found_id, count = _HEAD.unpack_from(data, _PREFIX.size)
    if version != FORMAT_VERSION:
        raise other_version(name, "limbo", FORMAT_VERSION, version)
    if found_id != bookie_id:
        raise _damaged(name, f"expected the limbo of bookie {bookie_id.hex()}, found that of {found_id.hex()}")
    if len(data) != _HEADER_BYTES + 9 * count:
        raise _damaged(name, f"expected {count} ledgers in {_HEADER_BYTES + 9 * count} bytes, found {len(data)} bytes")
    ledgers: array[int] = array("q")
    ledgers.frombytes(data[_HEADER_BYTES : _HEADER_BYTES + 8 * count])
    return dict(zip(ledgers.tolist(), map(bool, data[_HEADER_BYTES + 8 * count :]), strict=True))


def _damaged(name: str, what: str) -> CorruptData:
    return CorruptData(
        f"{name} at byte 0: {what}. Start with --salvage: the list is made again from the metadata", path=name, offset=0
    )
