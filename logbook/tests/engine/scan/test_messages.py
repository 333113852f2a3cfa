"""Requests and pages of scans survive their bytes; what cannot be right is refused."""

from __future__ import annotations

import msgspec
import pytest

from boki_common.errors import ProtocolError, VersionMismatch
from boki_logbook.scan.facts import COMMITTED, ScanRange, TermFacts
from boki_logbook.scan.messages import (
    VERSION,
    ScanAnswer,
    ScanRequest,
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
)
from boki_logbook.scan.pages import Page, SpanOfTerm

FACTS = TermFacts(3, 1, ((0, 9), (11, 12)), 40, True, 30, 20, 1_000, False, 2**64 - 1, 7, 8)
SPAN = SpanOfTerm(3, 4, 9, True, 12, ((0, 5, 10, 200),), ((0, 1, 2, b"why"),), ((0, 1, 2, 5, 6),))


@pytest.mark.parametrize(
    "page",
    [Page(), Page(terms=(FACTS,), time_ms=5), Page(spans=(SPAN,)), Page(term=3, times=b"12345678"), Page(last=True)],
)
def test_a_page_survives_its_bytes(page: Page) -> None:
    answer = ScanAnswer(VERSION, 9, page)
    assert decode_answer(encode_answer(answer)) == answer


def test_a_request_survives_its_bytes() -> None:
    request = ScanRequest(VERSION, 0, ScanRange({0: (1, 2)}, {0: (3, 4), 7: (2, 0)}, 2**64 - 1, (5, 6)), COMMITTED)
    assert decode_request(encode_request(request)) == request


def test_another_version_is_refused_by_name() -> None:
    with pytest.raises(VersionMismatch, match="version 1, found 2"):
        decode_request(msgspec.msgpack.encode([2, 0]))
    with pytest.raises(VersionMismatch, match="version 1, found 2"):
        decode_answer(msgspec.msgpack.encode([2, 0, []]))


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x90", msgspec.msgpack.encode([1, "handle"])])
def test_what_is_no_scan_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_request(body)
    with pytest.raises(ProtocolError):
        decode_answer(body)


def test_a_mode_that_is_not_known_is_refused() -> None:
    with pytest.raises(ProtocolError, match="live or committed"):
        decode_request(encode_request(ScanRequest(VERSION, 0, ScanRange({}, {}), "dead")))
