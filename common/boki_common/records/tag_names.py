"""The names of a record's tags, which stand before its data in its payload (table: `record_batch`). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from boki_common.errors import CorruptData

NAMES_BYTES: Final = Struct("<H")
NO_NAMES: Final = NAMES_BYTES.pack(0)
"""What comes before the data of a record whose tags have no names."""


def pack_names(names: Sequence[tuple[int, bytes]]) -> bytes:
    """The beginning of a payload: (index of the tag, its name in utf-8) for each tag that was given as a name."""
    packed = b"".join(bytes((index, len(name))) + name for index, name in names)
    return NAMES_BYTES.pack(len(packed)) + packed


def split_payload(payload: memoryview) -> tuple[list[tuple[int, str]], memoryview]:
    """Splits a payload into (index of the tag, its name) pairs and the record's data. Raises CorruptData: the names do not fit
    their length."""
    if len(payload) < NAMES_BYTES.size:
        raise CorruptData(f"a payload of {len(payload)} bytes has no room for the length of its tag names")
    (size,) = NAMES_BYTES.unpack_from(payload)
    start, end = NAMES_BYTES.size, NAMES_BYTES.size + size
    if end > len(payload):
        raise CorruptData(f"a payload of {len(payload)} bytes declares {size} bytes of tag names")
    names = []
    while start < end:
        stop = start + 2 + (payload[start + 1] if start + 1 < end else size)
        if stop > end:
            raise CorruptData("a tag name ends beyond the names of its payload")
        try:
            names.append((payload[start], str(payload[start + 2 : stop], "utf-8")))
        except UnicodeDecodeError as error:
            raise CorruptData(f"a tag name is not utf-8: {error}") from error
        start = stop
    return names, payload[end:]
