"""CRC32C of bytes that were summed before, after other bytes than then. Pure.

    crc32c(data, start) == crc32c(data) ^ shifted(start, len(data))

A CRC is linear: what comes before the data passes through them as it would through as many zeros. So whoever knows the sum of
some large data need not read them again to put a header before them; it costs two microseconds, however long they are.

How zeros change a value is kept in tables, one for each power of two of `_UNIT_BYTES`, made when they are first needed.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

import crc32c as _crc32c

_UNIT_BYTES: Final = 1_024
_ZEROS: Final = bytes(_UNIT_BYTES)
_ONES: Final = 0xFFFF_FFFF

_Table = tuple["array[int]", "array[int]", "array[int]", "array[int]"]
"""What becomes of each byte of a value, the lowest first."""
_tables: Final[list[_Table]] = []
"""For one unit, two, four and so on."""

crc32c = _crc32c.crc32c


def shifted(crc: int, length: int) -> int:
    """What a value contributes to the sum of `length` bytes that follow it."""
    units, rest = divmod(length, _UNIT_BYTES)
    if rest:
        crc = _over_zeros(crc, rest)
    if units >> len(_tables):
        _make_tables(units.bit_length())
    for table in _tables:
        if units & 1:
            one, two, three, four = table
            crc = one[crc & 255] ^ two[crc >> 8 & 255] ^ three[crc >> 16 & 255] ^ four[crc >> 24]
        units >>= 1
        if not units:
            break
    return crc


def _make_tables(levels: int) -> None:
    while len(_tables) < levels:
        half = (_UNIT_BYTES << len(_tables)) // 2
        # what becomes of single bits: over one unit they are zeros to read, over more it is known
        bits = [
            shifted(shifted(1 << bit, half), half) if _tables else _over_zeros(1 << bit, 2 * half) for bit in range(32)
        ]
        _tables.append((_of_byte(bits[:8]), _of_byte(bits[8:16]), _of_byte(bits[16:24]), _of_byte(bits[24:])))


def _over_zeros(crc: int, count: int) -> int:
    value: int = crc32c(_ZEROS[:count], crc ^ _ONES)
    return value ^ _ONES


def _of_byte(bits: Sequence[int]) -> array[int]:
    """What becomes of each value of a byte, from what becomes of its bits."""
    values = array("I", [0])
    for changed in bits:
        values.extend([value ^ changed for value in values])
    return values
