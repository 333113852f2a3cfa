"""Checksums in voids of named writers: a void says which record it takes the number of. Pure.

A number of a named writer may be another process's record already. So the void of a number carries the checksum of the record
that its sender numbered, and an engine answers it as it would answer that record: with its verdict, or REUSED.

    checksum in a void      says
    `EMPTY_CRC`             nothing: SDKs of earlier versions send no other, whatever they void
    `EMPTY_CRC` inverted    the record is empty: no tags, no data, no expectations
    any other               the record's own
"""

from __future__ import annotations

from typing import Final

import crc32c as _crc32c

from boki_common.records.tag_names import NO_NAMES

EMPTY_CRC: Final = _crc32c.crc32c(NO_NAMES)
"""Checksum of a record without tags, data and expectations."""
_INVERTED: Final = EMPTY_CRC ^ 0xFFFF_FFFF


def void_checksum(record: int) -> int:
    """Return the checksum that the void of a record with this one carries."""
    return _INVERTED if record == EMPTY_CRC else record


def compared_to(kept: int, said: int) -> int:
    """Return what a void's checksum is to be compared with `kept` as: `kept` itself if the void may be of that record."""
    return kept if said == EMPTY_CRC or said == void_checksum(kept) else said
