"""The body of an entry, as bookies store it: header, digest, payload (`v2` has the table). Pure.

A body counts only once its digest was computed and its numbers are those that were asked for. `verify_body` says what is wrong;
the others give the same verdict in a third of its time, for one body or for many that follow one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from boki_common.bookkeeper.digests import CRC32C, Digest, crc32c
from boki_common.bookkeeper.v2 import ENTRY_HEADER_BYTES, LAST_ENTRY, EntryHeader
from boki_common.errors import DigestMismatch

_HEADER: Final = Struct(">qqqq")
_CHECKED: Final = Struct(">qq16xI")
"""Ledger, entry and CRC32C of a body."""


def header_of(body: memoryview) -> EntryHeader:
    """What stands before the digest of a verified body."""
    return EntryHeader(*_HEADER.unpack_from(body))


def verify_body(body: memoryview, ledger_id: int, entry_id: int, digest: Digest) -> tuple[EntryHeader, memoryview]:
    """Checks a stored body and splits it into header and payload; `entry_id` -1 accepts any. Raises DigestMismatch: too short,
    the digest differs, or it is another entry's body."""
    start = ENTRY_HEADER_BYTES + digest.size
    if len(body) < start:
        text = (
            f"expected a body of at least {start} bytes for entry {entry_id} of ledger {ledger_id}, found {len(body)}"
        )
        raise _mismatch(text, ledger_id, entry_id)
    header = EntryHeader(*_HEADER.unpack_from(body))
    payload = body[start:]
    if digest.compute(body[:ENTRY_HEADER_BYTES], (payload,)) != body[ENTRY_HEADER_BYTES:start]:
        text = f"the {digest.name} of entry {entry_id} of ledger {ledger_id} does not match: this copy is damaged"
        raise _mismatch(text, ledger_id, entry_id)
    if header.ledger_id != ledger_id or entry_id not in (LAST_ENTRY, header.entry_id):
        text = f"expected entry {entry_id} of ledger {ledger_id}, found entry {header.entry_id} of {header.ledger_id}"
        raise _mismatch(text, ledger_id, entry_id)
    return header, payload


def _mismatch(text: str, ledger_id: int, entry_id: int) -> DigestMismatch:
    return DigestMismatch(text, ledger_id=ledger_id, entry_id=entry_id)


def is_sound(body: memoryview, ledger_id: int, entry_id: int, digest: Digest) -> bool:
    """Whether `verify_body` finds no fault, in a third of its time: it says what the fault is."""
    if digest is CRC32C:
        if len(body) < _CHECKED.size:
            return False
        found_ledger, found_entry, crc = _CHECKED.unpack_from(body)
        return (
            crc32c(body[_CHECKED.size :], crc32c(body[:ENTRY_HEADER_BYTES])) == crc
            and found_ledger == ledger_id
            and (found_entry == entry_id or entry_id == LAST_ENTRY)
        )
    try:
        verify_body(body, ledger_id, entry_id, digest)
    except DigestMismatch:
        return False
    return True


def payloads_of_run(bodies: Sequence[memoryview], ledger_id: int, first: int, digest: Digest) -> list[memoryview]:
    """Payloads of stored bodies of consecutive entries, up to the first that `verify_body` would find fault with."""
    payloads: list[memoryview] = []
    if digest is not CRC32C:
        for entry_id, body in enumerate(bodies, first):
            try:
                payloads.append(verify_body(body, ledger_id, entry_id, digest)[1])
            except DigestMismatch:
                break
        return payloads
    unpack, least, append = _CHECKED.unpack_from, _CHECKED.size, payloads.append
    for entry_id, body in enumerate(bodies, first):
        if len(body) < least:
            break
        found_ledger, found_entry, crc = unpack(body)
        payload = body[least:]
        if crc32c(payload, crc32c(body[:ENTRY_HEADER_BYTES])) != crc:
            break
        if found_entry != entry_id or found_ledger != ledger_id:
            break
        append(payload)
    return payloads
