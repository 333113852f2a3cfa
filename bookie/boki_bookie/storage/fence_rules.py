"""What a bookie answers to an add and to a fencing request, as tables over the state of one ledger. Pure.

    | add              | unknown ledger | other key    | fenced | not validated | read-only | else  |
    |------------------|----------------|--------------|--------|-------------|-----------|-------|
    | normal           | VALIDATE       | UNAUTHORIZED | FENCED | VALIDATE    | READ_ONLY | STORE |
    | control          | VALIDATE       | UNAUTHORIZED | FENCED | VALIDATE    | STORE     | STORE |
    | recovery         | STORE          | UNAUTHORIZED | STORE  | STORE       | STORE     | STORE |

    | fencing request  | unknown ledger | other key    | fenced         | else  |
    |------------------|----------------|--------------|----------------|-------|
    |                  | CREATE_FENCED  | UNAUTHORIZED | ALREADY_FENCED | FENCE |

Columns are asked from the second on, left to right; an unknown ledger has no key, is not fenced and not validated, so its
first column only names the result. A read-only bookie refuses a new ledger's normal add before it asks the metadata.
A control entry is a normal add with high priority; whether the reserve has room for it is `disk_room`'s part.

- **Whatever a fencing request is answered, the answer leaves only after the fence is durable** (also for ALREADY_FENCED:
  its record may still be on the way). That is `storage`'s part.
- A wrong key does not fence. Keys are compared in constant time and never logged.
- *Validated*: the metadata of the ledger once named this bookie and OPEN. Without that, a normal add could come from a
  writer whose ledger was recovered and closed while this disk did not exist (first validation, DESIGN §4 rule 5). Recovery adds
  and repairs do not validate it.

**A repeated add** of an entry that is held is accepted when it is the same entry: writers resend, recoverers write back.
A recoverer sends the payload it read under its own LAC, so header and digest may differ; ledger, entry, cumulative length
and payload may not. An add that contradicts the held entry is refused as BAD_REQUEST and logged: one incarnation writes a
ledger, so somebody broke that rule; neither replacing what was perhaps acknowledged nor acknowledging what is not stored
is right, and repeating the request is of no use. What is held stays. (A held copy that is damaged holds nothing any more:
a recovery add of the same length takes its place, see `waiting_adds`.)
"""

from __future__ import annotations

import hmac
import zlib
from enum import Enum, IntEnum
from struct import Struct
from typing import Final

import crc32c as _crc32c

from boki_common.bookkeeper.status import V2Status
from boki_common.bookkeeper.v2 import NUMBERS_END

MASTER_KEY_BYTES: Final = 20
ENTRY_HEADER_BYTES: Final = 32

_BODY: Final = Struct(">qqqq")
_LONGEST_DIGEST_BYTES: Final = 20


class AddVerdict(IntEnum):
    """What to do with an add; the refusals are numbered as their wire status."""

    STORE = 0
    VALIDATE = 1
    BAD_REQUEST = V2Status.BAD_REQUEST
    UNAUTHORIZED = V2Status.UNAUTHORIZED
    FENCED = V2Status.FENCED
    READ_ONLY = V2Status.READ_ONLY


class FenceVerdict(Enum):
    """What to do with a fencing request."""

    CREATE_FENCED = "create fenced"
    FENCE = "fence"
    ALREADY_FENCED = "already fenced"
    UNAUTHORIZED = "unauthorized"


def decide_add(
    stored_key: bytes | None,
    master_key: bytes,
    *,
    fenced: bool,
    validated: bool,
    recovery: bool,
    read_only: bool,
    control: bool = False,
) -> AddVerdict:
    """The first table; `stored_key` is None for an unknown ledger."""
    if stored_key is not None and not hmac.compare_digest(stored_key, master_key):
        return AddVerdict.UNAUTHORIZED
    if recovery:
        return AddVerdict.STORE
    if fenced:
        return AddVerdict.FENCED
    if read_only and not control:
        return AddVerdict.READ_ONLY
    return AddVerdict.STORE if validated else AddVerdict.VALIDATE


def decide_fence(stored_key: bytes | None, master_key: bytes, *, fenced: bool) -> FenceVerdict:
    """The second table; `stored_key` is None for an unknown ledger."""
    if stored_key is None:
        return FenceVerdict.CREATE_FENCED
    if not hmac.compare_digest(stored_key, master_key):
        return FenceVerdict.UNAUTHORIZED
    return FenceVerdict.ALREADY_FENCED if fenced else FenceVerdict.FENCE


def is_possible(ledger_id: int, entry_id: int, lac: int, length: int, *, recovery: int = 0) -> bool:
    """Whether the header of a body can be right, whatever its digest: numbers not negative, LAC below the entry.

    With `recovery` the LAC may be anything: who copies the entries of a closed ledger to another bookie (Apache's
    autorecovery) puts the end of the ledger into each.
    """
    lac_end = NUMBERS_END if recovery else entry_id
    return ledger_id >= 0 and 0 <= entry_id < NUMBERS_END and -1 <= lac < lac_end and 0 <= length < NUMBERS_END


def is_repeat(stored: memoryview, sent: memoryview) -> bool:
    """Whether an add is the entry that is held under its number, or contradicts it; see the module's description."""
    if stored == sent:
        return True
    stored_ids, sent_ids = _BODY.unpack_from(stored), _BODY.unpack_from(sent)
    same_place = stored_ids[:2] == sent_ids[:2] and stored_ids[3] == sent_ids[3]
    if same_place and stored_ids[2] != sent_ids[2] and len(stored) == len(sent):
        start = ENTRY_HEADER_BYTES + _digest_bytes(stored)
        return stored[start:] == sent[start:]
    return False


def _digest_bytes(body: memoryview) -> int:
    """Bytes of the digest that the body carries, by trying; the keyed one is as long as any and cannot be tried."""
    head = body[:ENTRY_HEADER_BYTES]
    if _crc32c.crc32c(body[36:], _crc32c.crc32c(head)).to_bytes(4, "big") == body[32:36]:
        return 4
    if zlib.crc32(body[40:], zlib.crc32(head)).to_bytes(8, "big") == body[32:40]:
        return 8
    return _LONGEST_DIGEST_BYTES
