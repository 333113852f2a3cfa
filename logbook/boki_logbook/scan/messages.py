"""What is asked of an engine that plans, and the pages that it answers with (opcode SCAN). Pure; both sides share it.

    request, msgpack     [version, handle, range, mode, close]
    answer, msgpack      [version, handle, page], see `pages`

Handle 0 begins a scan, and the first answer names its handle; each further request brings the next page. The page that is the
last ends the scan, as `close` does.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from boki_common.errors import DECODE_FAULTS, ProtocolError, VersionMismatch
from boki_common.runtime.ports import Buffer
from boki_logbook.scan.facts import COMMITTED, LIVE, ScanRange
from boki_logbook.scan.pages import Page

VERSION: Final = 1
SCAN: Final = "scan"
"""Feature in the HELLO of an engine that plans."""


class ScanRequest(msgspec.Struct, frozen=True, array_like=True):
    """See the module. `handle` 0 begins; then `asked` says what, and the other fields say nothing."""

    version: int
    handle: int = 0
    asked: ScanRange = ScanRange({}, {})
    mode: str = LIVE
    close: bool = False


class ScanAnswer(msgspec.Struct, frozen=True, array_like=True):
    """See the module."""

    version: int
    handle: int
    page: Page


_Message = TypeVar("_Message", ScanRequest, ScanAnswer)


def encode_request(request: ScanRequest) -> bytes:
    return msgspec.msgpack.encode(request)


def decode_request(body: Buffer) -> ScanRequest:
    """Raises ProtocolError, VersionMismatch."""
    request = _decode(body, ScanRequest, "a SCAN of a range")
    fault = request.asked.fault()
    if fault is None and request.mode not in (LIVE, COMMITTED):
        fault = f"expected rows that are {LIVE} or {COMMITTED}, found {request.mode!r}"
    if fault is not None:
        raise ProtocolError(fault)
    return request


def encode_answer(answer: ScanAnswer) -> bytes:
    return msgspec.msgpack.encode(answer)


def decode_answer(body: Buffer) -> ScanAnswer:
    """Raises ProtocolError, VersionMismatch."""
    return _decode(body, ScanAnswer, "a page of a scan")


def _decode(body: Buffer, kind: type[_Message], what: str) -> _Message:
    try:
        found = msgspec.msgpack.decode(body, type=kind)
    except DECODE_FAULTS as error:
        raise ProtocolError(f"expected {what}, found something else: {error}") from error
    if found.version != VERSION:
        raise VersionMismatch(
            f"expected {what} of version {VERSION}, found {found.version}", expected=VERSION, found=found.version
        )
    return found
