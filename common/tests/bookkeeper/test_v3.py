"""BookKeeper's v3 frames against frames recorded from Apache BookKeeper 4.18, in both directions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.bookkeeper import auth, v3, v3_messages
from boki_common.bookkeeper import bookkeeper_protocol_pb2 as pb
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import ProtocolError

VECTORS = Path(__file__).parent.parent / "vectors" / "bookkeeper"
KEY = bytes(range(20))


def frames(kind: str) -> list[tuple[str, bytes]]:
    """(case and number, whole frame) of every recorded v3 request or response."""
    found = []
    for path in sorted([*VECTORS.glob("v3-*.txt"), *VECTORS.glob("trace-v3-*.txt")]):
        for number, hexadecimal in re.findall(rf"^{kind}\.(\d+): ([0-9a-f]+)$", path.read_text(), re.MULTILINE):
            found.append((f"{path.stem}-{number}", bytes.fromhex(hexadecimal)))
    return found


def one(name: str, kind: str) -> bytes:
    return dict(frames(kind))[name]


def by_name(rows: list[tuple[str, bytes]]) -> list[object]:
    return [pytest.param(frame, id=name) for name, frame in rows]


def body(ledger_id: int, entry_id: int, *, size: int = 36) -> bytes:
    return (ledger_id.to_bytes(8, "big", signed=True) + entry_id.to_bytes(8, "big", signed=True)).ljust(size, b"\1")


@pytest.mark.parametrize("frame", by_name(frames("request")))
def test_recorded_requests_decode_and_encode_to_the_same_bytes(frame: bytes) -> None:
    assert frame[4] == v3.FIRST_BYTE
    request = v3.decode_request(memoryview(frame)[4:])
    assert not isinstance(request, v3_messages.UnknownRequest)
    assert v3.encode_request(request) == frame


@pytest.mark.parametrize("frame", by_name(frames("response")))
def test_recorded_responses_decode_and_encode_to_the_same_bytes(frame: bytes) -> None:
    response = v3.decode_response(memoryview(frame)[4:])
    assert not isinstance(response, v3_messages.UnknownResponse)
    assert v3.encode_response(response) == frame


def test_the_recorded_vectors_are_all_here() -> None:
    requests = {type(v3.decode_request(memoryview(frame)[4:])) for _, frame in frames("request")}
    assert len(frames("request")) == len(frames("response")) >= 60
    assert len(requests) == 7


def test_requests_mean_what_their_case_says() -> None:
    def request(name: str) -> v3.Request:
        return v3.decode_request(memoryview(one(name, "request"))[4:])

    key = bytes.fromhex("a49883672bf7a392e6d8744e832130511f8c359a")
    assert request("v3-fence-read-1") == v3_messages.ReadRequest(31, None, 2000, -1, key, False, -1, 0)
    assert request("v3-long-poll-timeout-1") == v3_messages.ReadRequest(46, None, 2030, -1, None, True, 0, 200)
    assert request("v3-read-no-entry-1") == v3_messages.ReadRequest(28, None, 2000, 77, None, False, -1, 0)
    assert request("v3-bookie-info-1") == v3_messages.BookieInfoRequest(51, None, v3.INFO_TOTAL | v3.INFO_FREE)
    assert request("v3-force-ledger-1") == v3_messages.ForceRequest(39, None, 2030)
    assert request("v3-list-of-entries-1") == v3_messages.ListEntriesRequest(52, None, 2030)
    assert request("v3-read-lac-1") == v3_messages.ReadLacRequest(41, None, 2030)
    recovery, deferred = request("v3-recovery-add-1"), request("v3-add-deferred-sync-1")
    assert isinstance(recovery, v3_messages.AddRequest) and isinstance(deferred, v3_messages.AddRequest)
    assert (recovery.recovery, recovery.deferred_sync) == (True, False)
    assert (deferred.recovery, deferred.deferred_sync) == (False, True)
    written = request("v3-write-lac-1")
    assert isinstance(written, v3_messages.WriteLacRequest)
    assert (written.ledger_id, written.lac, len(written.body)) == (2030, 0, 20)
    in_recovery = request("trace-v3-3-recover-2")
    assert isinstance(in_recovery, v3_messages.ReadRequest) and in_recovery.priority == 100


@pytest.mark.parametrize("status", V2Status)
def test_every_status_survives_the_wire(status: V2Status) -> None:
    response = v3_messages.AddResponse(2**63, status, 2**62, 0)
    assert v3.decode_response(memoryview(v3.encode_response(response))[4:]) == response


def test_statuses_have_the_numbers_of_the_recorded_frames() -> None:
    for name, status in (
        ("v3-add-fenced-1", V2Status.FENCED),
        ("v3-add-wrong-key-1", V2Status.UNAUTHORIZED),
        ("v3-read-no-entry-1", V2Status.NO_ENTRY),
        ("v3-read-no-ledger-1", V2Status.NO_LEDGER),
        ("v3-long-poll-bad-request-1", V2Status.BAD_REQUEST),
    ):
        assert v3.decode_response(memoryview(one(name, "response"))[4:]).status is status


def decode(operation: int, version: int = 3, **fields: Any) -> v3.Request:
    """Decodes a request of the given fields; version 3 unless given."""
    header = pb.PacketHeader(version=version, operation=operation, txnId=9)
    return v3.decode_request(memoryview(pb.Request(header=header, **fields).SerializePartialToString()))


def test_versions_operations_and_flags_not_served_are_reported_not_guessed() -> None:
    read = pb.ReadRequest(ledgerId=1, entryId=1, flag=3)
    add = pb.AddRequest(ledgerId=1, entryId=0, masterKey=KEY, body=body(1, 0), writeFlags=2)
    assert decode(operation=1, version=2) == v3_messages.UnknownRequest(9, 1, V2Status.BAD_VERSION)
    assert decode(operation=99) == v3_messages.UnknownRequest(9, 99, V2Status.BAD_REQUEST)
    assert decode(operation=1, readRequest=read) == v3_messages.UnknownRequest(9, 1, V2Status.BAD_REQUEST)
    poll = pb.ReadRequest(ledgerId=1, entryId=-1, flag=2, timeOut=5)
    assert decode(operation=1, readRequest=poll) == v3_messages.UnknownRequest(9, 1, V2Status.BAD_REQUEST), "of no LAC"
    assert decode(operation=2, addRequest=add) == v3_messages.UnknownRequest(9, 2, V2Status.BAD_REQUEST)
    answer = v3_messages.UnknownResponse(9, 99, V2Status.BAD_REQUEST)
    assert v3.decode_response(memoryview(v3.encode_response(answer))[4:]) == answer


def test_a_handshake_survives_the_wire() -> None:
    message = auth.AuthMessage("plugin", b"\0token")
    request = v3_messages.AuthRequest(2**63, 1, message)
    assert v3.decode_request(memoryview(v3.encode_request(request))[4:]) == request
    response = v3_messages.AuthResponse(5, V2Status.OK, message)
    assert v3.decode_response(memoryview(v3.encode_response(response))[4:]) == response


@pytest.mark.parametrize(
    "fields",
    [
        {"operation": 1},
        {"operation": 5},
        {"operation": 5, "authRequest": pb.AuthMessage(payload=b"")},
        {"operation": 1, "readRequest": pb.ReadRequest(ledgerId=1)},
        {"operation": 7, "readLacRequest": pb.LedgerRequest()},
        {"operation": 2, "readRequest": pb.ReadRequest(ledgerId=1, entryId=1)},
        {"operation": 1, "readRequest": pb.ReadRequest(ledgerId=1, entryId=1, flag=1)},
        {"operation": 1, "readRequest": pb.ReadRequest(ledgerId=1, entryId=1, flag=1, masterKey=KEY[1:])},
        {"operation": 1, "readRequest": pb.ReadRequest(ledgerId=1, entryId=-1, flag=2, previousLAC=0, timeOut=-1)},
        {"operation": 1, "readRequest": pb.ReadRequest(ledgerId=1, entryId=-1, flag=2, previousLAC=-2)},
        {"operation": 2, "addRequest": pb.AddRequest(ledgerId=1, entryId=0, masterKey=KEY, body=body(1, 0)[:31])},
        {"operation": 2, "addRequest": pb.AddRequest(ledgerId=1, entryId=0, masterKey=KEY, body=body(1, 1))},
        {"operation": 2, "addRequest": pb.AddRequest(ledgerId=1, entryId=0, masterKey=KEY, body=body(2, 0))},
        {"operation": 2, "addRequest": pb.AddRequest(ledgerId=1, entryId=0, masterKey=b"", body=body(1, 0))},
        {"operation": 6, "writeLacRequest": pb.WriteLacRequest(ledgerId=1, lac=2, masterKey=KEY, body=body(1, 3))},
        {"operation": 6, "writeLacRequest": pb.WriteLacRequest(ledgerId=1, lac=2, masterKey=KEY, body=b"short")},
        {"operation": 6, "writeLacRequest": pb.WriteLacRequest(ledgerId=1, lac=2, masterKey=KEY, body=body(1, 2, size=40))},
    ],
)  # fmt: skip
def test_requests_that_cannot_be_are_protocol_errors(fields: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError, match="expected"):
        decode(**dict(fields))


def test_responses_that_cannot_be_are_protocol_errors() -> None:
    header = pb.PacketHeader(version=3, operation=2, txnId=1)
    for response in (
        pb.Response(header=header, status=0),
        pb.Response(header=header, status=77),
        pb.Response(header=pb.PacketHeader(version=2, operation=2, txnId=1), status=404),
        pb.Response(header=header, status=0, addResponse=pb.AddResponse(status=9, ledgerId=1, entryId=1)),
    ):
        with pytest.raises(ProtocolError, match="expected"):
            v3.decode_response(memoryview(response.SerializeToString()))


@given(st.binary(max_size=200), st.sampled_from(frames("request")), st.integers(0, 60), st.integers(0, 255))
def test_arbitrary_and_damaged_frames_never_crash(
    noise: bytes, recorded: tuple[str, bytes], at: int, byte: int
) -> None:
    damaged = bytearray(recorded[1][4:])
    damaged[at % len(damaged)] = byte
    for frame in (noise, bytes([v3.FIRST_BYTE]) + noise, bytes(damaged), bytes(damaged[: at % len(damaged)])):
        for decode_any in (v3.decode_request, v3.decode_response):
            try:
                decode_any(memoryview(frame))
            except ProtocolError:
                pass
