"""Whether a directory is the one that served last, or an older copy of it: a backup, a snapshot. Pure.

A copy has forgotten what was acknowledged since it was made: it would deny entries, and take adds of ledgers that are fenced.
So each start of a bookie is a *life* with a random token. Its cookie in the metadata names one, each directory two of them:

    1. judge       each directory has the life that the cookie names; else it is refused
    2. settle      the cookie is written as it is: no write of an earlier life can land any more
    3. directory   a new life takes the place of the one that the cookie does not name. Durable in all directories
    4. cookie      names the new life, at the version that was settled
    5. serve

A crash after 3 or 4 leaves a cookie that names one of the two: the directory is started again, and nothing was served
meanwhile. A directory has a life only from its third step on, so a copy that was made before has it not, whichever steps were
repeated and whichever write came late. Of two copies that are started at once each draws a life of its own; the one that comes
second cannot write the cookie, and finds the other's there ever after.

A copy that was made *within* the last life has that life. While it serves, a bookie records in its cookie now and then
which checkpoint each directory has reached (a number that only grows, recorded once it is durable): a copy with an older one is
refused. Not found is a copy that is younger than the last recorded checkpoint.

    | cookie      | directory                      | verdict                                                       |
    |-------------|--------------------------------|---------------------------------------------------------------|
    | no life     | has no second one              | CURRENT: of an earlier version, or never served               |
    | no life     | has two                        | FORGOTTEN: somebody else wrote the cookie                     |
    | life a      | has a, and its checkpoints     | CURRENT                                                       |
    | life a      | has a, an older checkpoint     | OLDER                                                         |
    | life a      | has it not, and a later one    | AHEAD: the metadata is older than the directory               |
    | life a      | has it not, and no later one   | OLDER                                                         |

Whatever is not CURRENT is not served as it is: only salvage (`salvage`) makes it a bookie again.

The file LIFE has two slots, of a page each; a slot is written in place, so that it takes no space, and one that is torn or
empty holds nothing. All integers are little endian:

    offset  size  field
    0       4     magic "BKV1"
    4       4     crc32c of bytes 8-63
    8       4     format version, 1
    12      4     zero
    16      8     number of the life, from 1
    24      16    token
    40      16    bookie id
    56      8     zero
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from struct import Struct
from typing import Final, NamedTuple, Protocol

import crc32c as _crc32c

from boki_bookie.formats.journal_format import other_version

SLOT_BYTES: Final = 4_096
SLOTS: Final = 2
TOKEN_BYTES: Final = 16
FORMAT_VERSION: Final = 1

_MAGIC: Final = int.from_bytes(b"BKV1", "little")
_PREFIX: Final = Struct("<II")
_SLOT: Final = Struct("<I4xQ16s16s8x")


class KnownLife(Protocol):
    """The life that a cookie names."""

    @property
    def number(self) -> int: ...
    @property
    def token(self) -> str: ...
    @property
    def checkpoints(self) -> tuple[int, ...]:
        """The number of one of each directory, as recorded last; those on the disk are not older."""


class Slot(NamedTuple):
    """One life."""

    number: int
    token: str
    """Hexadecimal."""


class StoredLife(NamedTuple):
    """What one directory says."""

    slots: tuple[Slot | None, ...] = (None,) * SLOTS
    checkpoint: int | None = None
    """Number of its last checkpoint; None if that cannot be read, which is found out later."""

    @property
    def number(self) -> int:
        """Of its last life; 0 for none."""
        return max((slot.number for slot in self.slots if slot is not None), default=0)

    def has(self, token: str) -> bool:
        return any(slot is not None and slot.token == token for slot in self.slots)


class Copy(Enum):
    """What a directory is."""

    CURRENT = "current"
    OLDER = "older"
    AHEAD = "ahead"
    FORGOTTEN = "forgotten"


def judge_copy(stored: StoredLife, known: KnownLife | None, *, directory: int) -> Copy:
    """The first table, for one of the directories, which count from 0."""
    if known is None:
        return Copy.CURRENT if stored.slots[1] is None else Copy.FORGOTTEN
    if not stored.has(known.token):
        return Copy.AHEAD if stored.number > known.number else Copy.OLDER
    recorded = known.checkpoints[directory] if directory < len(known.checkpoints) else 0
    return Copy.OLDER if stored.checkpoint is not None and stored.checkpoint < recorded else Copy.CURRENT


def slot_to_write(stored: StoredLife, known: KnownLife | None) -> int:
    """Not the one that the cookie names: until the cookie names the new life, that one has to be there."""
    first = stored.slots[0]
    return 1 if known is not None and first is not None and first.token == known.token else 0


def next_number(stored: Sequence[StoredLife], known: KnownLife | None) -> int:
    """Of the life that begins now."""
    return 1 + max(0 if known is None else known.number, *(one.number for one in stored))


def encode_slot(slot: Slot, bookie_id: bytes) -> bytes:
    """One page."""
    used = _SLOT.pack(FORMAT_VERSION, slot.number, bytes.fromhex(slot.token), bookie_id)
    return (_PREFIX.pack(_MAGIC, _crc32c.crc32c(used)) + used).ljust(SLOT_BYTES, b"\0")


def decode_slot(data: bytes, bookie_id: bytes, *, name: str) -> Slot | None:
    """None: torn, empty, or another bookie's. Raises VersionMismatch."""
    used = data[_PREFIX.size : _PREFIX.size + _SLOT.size]
    if len(used) < _SLOT.size or _PREFIX.unpack_from(data) != (_MAGIC, _crc32c.crc32c(used)):
        return None
    version, number, token, owner = _SLOT.unpack(used)
    if version != FORMAT_VERSION:
        raise other_version(name, "life", FORMAT_VERSION, version)
    return Slot(number, token.hex()) if owner == bookie_id else None
