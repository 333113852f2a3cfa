"""Entry digests and ledger keys of Apache BookKeeper. Pure.

A digest covers the 32 bytes of the entry header (or the 16 of an explicit LAC) and the payload. Sizes in the body:

    CRC32C 4 B big endian · CRC32 8 B big endian, value in the low four · HMAC 20 B, HMAC-SHA1 keyed with
    SHA-1("mac" + password) · DUMMY 0 B

The master key, SHA-1("ledger" + password), goes with every add and every fence; it is an access token, never logged.
"""

from __future__ import annotations

import hashlib
import hmac
import zlib
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import crc32c as _crc32c

from boki_common.errors import InvalidArgument
from boki_common.runtime.ports import Buffer

MASTER_KEY_BYTES: Final = 20


class Digest(NamedTuple):
    """One kind of digest; `compute(head, payload)` gives its `size` bytes."""

    name: str
    size: int
    compute: Callable[[Buffer, Sequence[Buffer]], bytes]


def _of_crc32c(head: Buffer, payload: Sequence[Buffer]) -> bytes:
    crc = _crc32c.crc32c(head)
    for part in payload:
        crc = _crc32c.crc32c(part, crc)
    return crc.to_bytes(4, "big")


def _of_crc32(head: Buffer, payload: Sequence[Buffer]) -> bytes:
    crc = zlib.crc32(head)
    for part in payload:
        crc = zlib.crc32(part, crc)
    return crc.to_bytes(8, "big")


def _of_nothing(head: Buffer, payload: Sequence[Buffer]) -> bytes:
    return b""


def _of_hmac(key: bytes) -> Callable[[Buffer, Sequence[Buffer]], bytes]:
    def compute(head: Buffer, payload: Sequence[Buffer]) -> bytes:
        mac = hmac.new(key, head, hashlib.sha1)
        for part in payload:
            mac.update(part)
        return mac.digest()

    return compute


CRC32C: Final = Digest("CRC32C", 4, _of_crc32c)
CRC32: Final = Digest("CRC32", 8, _of_crc32)
DUMMY: Final = Digest("DUMMY", 0, _of_nothing)


def digest_for(kind: str, password: bytes) -> Digest:
    """The digest of a ledger, by the name in its metadata. Raises InvalidArgument for an unknown one."""
    if kind == "HMAC":
        return Digest("HMAC", 20, _of_hmac(hashlib.sha1(b"mac" + password).digest()))
    for digest in (CRC32C, CRC32, DUMMY):
        if digest.name == kind:
            return digest
    raise InvalidArgument(f"expected a digest CRC32C, CRC32, HMAC or DUMMY, found {kind!r}", found=kind)


def master_key(password: bytes) -> bytes:
    """SHA-1("ledger" + password), 20 bytes."""
    return hashlib.sha1(b"ledger" + password).digest()
