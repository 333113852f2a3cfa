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
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

import crc32c as _crc32c

from boki_common.crc_shift import shifted
from boki_common.errors import InvalidArgument
from boki_common.runtime.ports import Buffer

MASTER_KEY_BYTES: Final = 20
_HEADER_BYTES: Final = 32
_CRC32C_BODY: Final = Struct(">32sI")
"""A whole body up to and with its CRC32C."""

crc32c = _crc32c.crc32c


class Digest(NamedTuple):
    """One kind of digest; `compute(head, payload)` gives its `size` bytes."""

    name: str
    size: int
    compute: Callable[[Buffer, Sequence[Buffer]], bytes]


def _of_crc(add: Callable[[Buffer, int], int], size: int) -> Callable[[Buffer, Sequence[Buffer]], bytes]:
    def compute(head: Buffer, payload: Sequence[Buffer]) -> bytes:
        crc = add(head, 0)
        for part in payload:
            crc = add(part, crc)
        return crc.to_bytes(size, "big")

    return compute


def _of_hmac(key: bytes) -> Callable[[Buffer, Sequence[Buffer]], bytes]:
    def compute(head: Buffer, payload: Sequence[Buffer]) -> bytes:
        mac = hmac.new(key, head, hashlib.sha1)
        for part in payload:
            mac.update(part)
        return mac.digest()

    return compute


CRC32C: Final = Digest("CRC32C", 4, _of_crc(crc32c, 4))
CRC32: Final = Digest("CRC32", 8, _of_crc(zlib.crc32, 8))
DUMMY: Final = Digest("DUMMY", 0, lambda head, payload: b"")


def digest_for(kind: str, password: bytes) -> Digest:
    """The digest of a ledger, by the name in its metadata. Raises InvalidArgument for an unknown one."""
    if kind == "HMAC":
        return Digest("HMAC", 20, _of_hmac(hashlib.sha1(b"mac" + password).digest()))
    for digest in (CRC32C, CRC32, DUMMY):
        if digest.name == kind:
            return digest
    raise InvalidArgument(f"expected a digest CRC32C, CRC32, HMAC or DUMMY, found {kind!r}", found=kind)


Matches = Callable[[Sequence[memoryview]], bool]
"""Whether the digest in each of some whole stored bodies (header, digest, payload) is the one of the rest. Never raises."""


def matcher_for(kind: str, password: bytes) -> Matches:
    """The quick check of whole bodies, for a bookie that takes many. Raises InvalidArgument for an unknown digest."""
    digest = digest_for(kind, password)
    if digest is CRC32C:
        return crc32c_matches
    if digest is DUMMY:
        return _long_enough
    start, compute = _HEADER_BYTES + digest.size, digest.compute

    def matches(bodies: Sequence[memoryview]) -> bool:
        # a body that ends inside its digest has a shorter one, which is never equal
        return all(compute(body[:_HEADER_BYTES], (body[start:],)) == body[_HEADER_BYTES:start] for body in bodies)

    return matches


def crc32c_matches(bodies: Sequence[memoryview]) -> bool:
    """What most ledgers have: `sum_of_matching` gives the sum of bodies that match."""
    unpack = _CRC32C_BODY.unpack_from
    try:
        for body in bodies:
            head, wanted = unpack(body)
            if crc32c(body[36:], crc32c(head)) != wanted:
                return False
    except StructError:  # a body that ends inside its digest
        return False
    return True


def sum_of_matching(body: memoryview) -> int:
    """crc32c of a whole body whose digest is a CRC32C and matches: it is known without reading the payload again."""
    head, digest = _CRC32C_BODY.unpack_from(body)
    start = _CRC32C_BODY.size
    value: int = digest ^ shifted(crc32c(body[:start]) ^ crc32c(head), len(body) - start)
    return value


def _long_enough(bodies: Sequence[memoryview]) -> bool:
    return min(map(len, bodies), default=_HEADER_BYTES) >= _HEADER_BYTES


def master_key(password: bytes) -> bytes:
    """SHA-1("ledger" + password), 20 bytes."""
    return hashlib.sha1(b"ledger" + password).digest()
