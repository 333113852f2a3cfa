"""Ids of session writers: 16 bytes that say when the writer was made (ADR 23). Pure.

    offset  size  field
    0       7     random
    7       5     birth: seconds since 1970-01-01 UTC, little endian, below 2**39
    12      4     "born"

The log refuses the first number of a writer that is as old as one it has forgotten, so no copy of what a forgotten writer sent is
applied again. A birth is only compared with births: when it is wrong, somebody takes another one, and nothing worse happens.

Ids without a birth are those of earlier versions, 16 random bytes; one in 2**32 of these looks like one that has. Writers with a
name are never asked for a birth, whatever their ids look like.
"""

from __future__ import annotations

from typing import Final

from boki_common.runtime.ports import Random

WRITER_BYTES: Final = 16
BORN: Final = b"born"
BIRTHS: Final = 1 << 39
"""Births are below this. What is not has none; so however far ahead a birth is, there is always one above it."""
_RANDOM_BYTES: Final = 7
_BIRTH_END: Final = 12


def born_writer(rng: Random, birth: int) -> bytes:
    """A new writer's id."""
    assert 0 <= birth < BIRTHS, birth
    return rng.token(_RANDOM_BYTES) + birth.to_bytes(_BIRTH_END - _RANDOM_BYTES, "little") + BORN


def birth_of(writer: bytes) -> int | None:
    """When a writer was made, as its id says; None if it says nothing."""
    if writer[_BIRTH_END:] != BORN:
        return None
    birth = int.from_bytes(writer[_RANDOM_BYTES:_BIRTH_END], "little")
    return birth if birth < BIRTHS else None
