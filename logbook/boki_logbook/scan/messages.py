"""What is asked of an engine that plans, and the pages that it answers with (opcode SCAN). Pure; both sides share it.

    request, msgpack     [version, handle, range, mode, close]
    answer, msgpack      [version, handle, page], see `pages`

Handle 0 begins a scan, and the first answer names its handle; each further request brings the next page. The page that is the
last ends the scan, as `close` does.
"""

from __future__ import annotations

from typing import Final

import msgspec

from boki_common.errors import DECODE_FAULTS, ProtocolError, VersionMismatch
from boki_common.runtime.ports import Buffer
from boki_logbook.scan.facts import COMMITTED, LIVE, ScanRange
from boki_logbook.scan.pages import Page

VERSION: Final = 1
SCAN: Final = "scan"
"""Feature that an engine says in its HELLO: it plans."""


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


def encode_request(request: ScanRequest) -> bytes:
    return msgspec.msgpack.encode(request)


def decode_request(body: Buffer) -> ScanRequest:
    """Raises ProtocolError, VersionMismatch."""
    try:
        request = msgspec.msgpack.decode(body, type=ScanRequest)
    except DECODE_FAULTS as error:
        raise ProtocolError(f"expected a SCAN of a range, found something else: {error}") from error
    if request.version != VERSION:
        raise VersionMismatch(
            f"expected a SCAN of version {VERSION}, found {request.version}", expected=VERSION, found=request.version
        )
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
    try:
        answer = msgspec.msgpack.decode(body, type=ScanAnswer)
    except DECODE_FAULTS as error:
        raise ProtocolError(f"expected a page of a scan, found something else: {error}") from error
    if answer.version != VERSION:
        raise VersionMismatch(
            f"expected a page of a scan of version {VERSION}, found {answer.version}",
            expected=VERSION,
            found=answer.version,
        )
    return answer
