"""The body of a LAC that is written by itself, as Apache BookKeeper has it. Pure.

    ledger i64 | LAC i64, big endian | digest of these 16 bytes (see `digests`)

It is verified as an entry is: a bookie keeps it without looking, and any bookie's copy may be damaged.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from boki_common.bookkeeper.digests import Digest
from boki_common.errors import DigestMismatch
from boki_common.runtime.ports import Buffer

_IDS: Final = Struct(">qq")


def encode_lac(ledger_id: int, lac: int, digest: Digest) -> bytes:
    """The body that says so."""
    head = _IDS.pack(ledger_id, lac)
    return head + digest.compute(head, ())


def decode_lac(body: Buffer, ledger_id: int, digest: Digest) -> int:
    """The LAC. Raises DigestMismatch: damaged, or of another ledger."""
    head = bytes(body[: _IDS.size])
    if len(body) != _IDS.size + digest.size or digest.compute(head, ()) != bytes(body[_IDS.size :]):
        raise DigestMismatch(
            f"expected a LAC of ledger {ledger_id} with a valid {digest.name} digest, found {len(body)} bytes without one",
            ledger_id=ledger_id,
        )
    found, lac = _IDS.unpack(head)
    if found != ledger_id:
        raise DigestMismatch(f"expected a LAC of ledger {ledger_id}, found one of {found}", ledger_id=ledger_id)
    return int(lac)
