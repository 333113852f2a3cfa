"""CRC32C of bytes that were summed before, after other bytes than then. Pure.

    crc32c(data, start) == crc32c(data) ^ shifted(start, len(data))

A CRC is linear: what comes before the data passes through them as it would through as many zeros. So whoever knows the sum of
some large data need not read them again to put a header before them; it costs two microseconds, however long they are.

How zeros change a value is kept in tables, one for each power of two of `_UNIT_BYTES`, made when they are first needed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final

import crc32c as _crc32c

_UNIT_BYTES: Final = 1_024
_ZEROS: Final = bytes(_UNIT_BYTES)
_ONES: Final = 0xFFFF_FFFF

_tables: Final[list[array[int]]] = []
"""The one at `level` is for 2**level units; four of 256 values, one for each byte of the value that is looked up."""

crc32c = _crc32c.crc32c


def shifted(crc: int, length: int) -> int:
    """What a value contributes to the sum of `length` bytes that follow it."""
    units, rest = divmod(length, _UNIT_BYTES)
    if rest:
        crc = _over_zeros(crc, rest)
    level = 0
    while units:
        if level == len(_tables):
            _tables.append(_table(_over_unit if level == 0 else _twice(_tables[-1])))
        if units & 1:
            crc = _look_up(_tables[level], crc)
        units >>= 1
        level += 1
    return crc


def _look_up(table: array[int], crc: int) -> int:
    return table[crc & 255] ^ table[256 + (crc >> 8 & 255)] ^ table[512 + (crc >> 16 & 255)] ^ table[768 + (crc >> 24)]


def _over_zeros(crc: int, count: int) -> int:
    value: int = crc32c(_ZEROS[:count], crc ^ _ONES)
    return value ^ _ONES


def _over_unit(crc: int) -> int:
    return _over_zeros(crc, _UNIT_BYTES)


def _twice(table: array[int]) -> Callable[[int], int]:
    return lambda crc: _look_up(table, _look_up(table, crc))


def _table(change: Callable[[int], int]) -> array[int]:
    """From what becomes of the 32 single bits."""
    table = array("I", bytes(4 * 4 * 256))
    for start in range(0, 4 * 256, 256):
        for bit in range(8):
            value, first = change(1 << bit + start // 32), start + (1 << bit)
            for lower in range(1 << bit):
                table[first + lower] = table[start + lower] ^ value
    return table
