"""BookKeeper's v2 frames against frames recorded from Apache BookKeeper 4.18, in both directions."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.bookkeeper import auth, v2
from boki_common.bookkeeper.digests import digest_for, master_key
from boki_common.bookkeeper.entry_body import verify_body
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import BokiError, ProtocolError

VECTORS = Path(__file__).parent.parent / "vectors" / "bookkeeper"
PASSWORD = b"vectors"
KEY = master_key(PASSWORD)
SERVED = {v2.OP_ADD, v2.OP_READ, v2.OP_BATCH_READ}


def frames(kind: str) -> list[tuple[str, bytes]]:
    """(case and number, whole frame) of every recorded v2 request or response."""
    found = []
    for path in sorted([*VECTORS.glob("v2-*.txt"), *VECTORS.glob("trace-v2-*.txt")]):
        for number, hexadecimal in re.findall(rf"^{kind}\.(\d+): ([0-9a-f]+)$", path.read_text(), re.MULTILINE):
            frame = bytes.fromhex(hexadecimal)
            if frame[5] in SERVED:
                found.append((f"{path.stem}-{number}", frame))
    return found


def by_name(rows: list[tuple[str, bytes]]) -> list[object]:
    return [pytest.param(frame, id=name) for name, frame in rows]


def digest_of(name: str) -> str:
    kinds = {"crc32": "CRC32", "crc32c": "CRC32C", "hmac": "HMAC", "dummy": "DUMMY"}
    return kinds.get(name.split("-")[2] if name.count("-") > 2 else "", "CRC32C")


@pytest.mark.parametrize("frame", by_name(frames("request")))
def test_recorded_requests_decode_and_encode_to_the_same_bytes(frame: bytes) -> None:
    request = v2.decode_request(memoryview(frame)[4:])
    high = bool(getattr(request, "flags", 0) & v2.FLAG_HIGH_PRIORITY)
    if isinstance(request, v2.AddRequest):
        again = b"".join(v2.encode_add_body([request.body], request.master_key, recovery=request.recovery))
        if (
            request.recovery and not high
        ):  # the low-level client that was recorded leaves out the priority we always set
            again = again[:6] + frame[6:8] + again[8:]
    elif isinstance(request, v2.ReadRequest):
        again = v2.encode_read(request.ledger_id, request.entry_id, fence_key=request.master_key, high_priority=high)
    else:
        assert isinstance(request, v2.BatchReadRequest)
        again = v2.encode_batch_read(
            request.ledger_id,
            request.entry_id,
            request_id=request.request_id,
            max_count=request.max_count,
            max_bytes=request.max_bytes,
            fence_key=request.master_key,
            high_priority=high,
        )
    assert again == frame


@pytest.mark.parametrize("frame", by_name(frames("response")))
def test_recorded_responses_decode_and_encode_to_the_same_bytes(frame: bytes) -> None:
    response = v2.decode_response(memoryview(frame)[4:])
    if isinstance(response, v2.AddResponse):
        assert v2.encode_add_response(*response) == frame
    elif isinstance(response, v2.ReadResponse):
        assert b"".join(v2.encode_read_response(*response)) == frame
    else:
        assert isinstance(response, v2.BatchReadResponse)
        assert b"".join(v2.encode_batch_read_response(*response)) == frame


@pytest.mark.parametrize(
    ("name", "frame"), [(name, frame) for name, frame in frames("request") if frame[5] == v2.OP_ADD and "add-" in name]
)
def test_recorded_bodies_are_what_we_would_build_and_their_digests_hold(name: str, frame: bytes) -> None:
    request = v2.decode_request(memoryview(frame)[4:])
    assert isinstance(request, v2.AddRequest)
    digest = digest_for(digest_of(name), PASSWORD)
    header, payload = verify_body(request.body, request.ledger_id, request.entry_id, digest)
    built = b"".join(v2.encode_add(header, digest, request.master_key, [payload[:3], payload[3:]]))
    assert built[8:] == frame[8:]
    if "wrong-key" not in name:
        assert request.master_key == KEY


def test_the_recorded_vectors_are_all_here() -> None:
    assert len(frames("request")) >= 30
    assert len(frames("response")) >= 30


@given(st.binary(max_size=200))
def test_arbitrary_requests_never_crash(frame: bytes) -> None:
    try:
        v2.decode_request(memoryview(frame))
    except ProtocolError:
        pass


@given(st.binary(max_size=120), st.sampled_from(sorted(SERVED)))
def test_arbitrary_responses_never_crash(frame: bytes, opcode: int) -> None:
    for candidate in (frame, bytes((2, opcode)) + frame):
        try:
            v2.decode_response(memoryview(candidate))
        except BokiError:
            pass


def test_other_versions_are_reported_not_guessed() -> None:
    assert v2.decode_request(memoryview(b"\x03\x02\0\0" + bytes(7) + b"\5" + bytes(7) + b"\6")) == v2.UnknownRequest(
        3, v2.OP_READ, V2Status.BAD_VERSION, 5, 6
    )
    for opcode in range(20):
        frame = memoryview(bytes((v2.V3_FIRST_BYTE, opcode)) + bytes(opcode + 2))
        assert v2.decode_request(frame) == v2.UnknownRequest(10, opcode, V2Status.BAD_VERSION), "left to v3"


@pytest.mark.parametrize(
    "frame", [b"\x02\x63\0\0", b"\x03\x63\0\0" + bytes(60), b"\x03\x01\0\0", b"\x01\x07\0\0" + bytes(23)]
)
def test_opcodes_that_are_none_and_requests_cut_off_are_protocol_errors(frame: bytes) -> None:
    with pytest.raises(ProtocolError, match="expected"):
        v2.decode_request(memoryview(frame))


def test_a_handshake_survives_the_wire() -> None:
    message = auth.AuthMessage("plugin", b"\0token")
    frame = memoryview(v2.encode_auth(message))[4:]
    assert v2.decode_request(frame) == v2.AuthRequest(message)


KEYS = (master_key(b""), master_key(b"secret"))
numbers = st.integers(-2, 6)
adds = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from(KEYS), st.booleans(), numbers, numbers, numbers),
    min_size=1,
    max_size=8,
)


@given(adds, st.integers(0, 7))
def test_a_run_is_as_many_adds_as_differ_in_their_entries_only(
    rows: list[tuple[int, bytes, bool, int, int, int]], at: int
) -> None:
    digest = digest_for("CRC32C", b"")
    whole = [
        b"".join(v2.encode_add(v2.EntryHeader(ledger, entry, lac, length), digest, key, [b"data"], recovery=recovery))
        for ledger, key, recovery, entry, lac, length in rows
    ]
    requests = [memoryview(frame)[4:] for frame in whole]
    start = at % len(rows)
    ledger, key, recovery, previous = *rows[start][:3], -1
    expected = []
    for one in rows[start:]:
        entry, lac, length = one[3:]
        if one[:3] != (ledger, key, recovery) or entry <= previous or not -1 <= lac < entry or length < 0:
            break
        expected.append(entry)
        previous = entry
    run = v2.decode_add_run(requests, start)
    if not expected:
        assert run is None
        return
    assert run is not None
    assert (run.ledger_id, run.master_key, run.recovery, run.entry_ids) == (ledger, key, recovery, expected)
    assert [bytes(body) for body in run.bodies] == [bytes(requests[start + i][24:]) for i in range(len(expected))]
    assert (run.count, run.body_bytes) == (len(expected), sum(map(len, run.bodies)))


REQUESTS = st.one_of(
    st.builds(v2.encode_read, st.integers(-5, 5), st.integers(-5, 5), high_priority=st.booleans()),
    st.builds(v2.encode_read, st.just(1), st.just(2), fence_key=st.just(KEY), high_priority=st.booleans()),
    st.builds(lambda flags: b"\0\0\0\x14\x02\x02" + flags + bytes(16), st.binary(min_size=2, max_size=2)),
    st.builds(lambda word: b"\0\0\0\x14" + word + bytes(16), st.binary(min_size=4, max_size=4)),
    st.binary(max_size=30).map(lambda rest: b"\0\0\0\0" + rest),
)


@given(st.lists(REQUESTS, max_size=8))
def test_reads_that_do_not_fence_are_taken_together_as_one_by_one(requests: list[bytes]) -> None:
    found = [memoryview(request)[4:] for request in requests]
    for start in range(len(found)):
        reads = v2.decode_unfenced_reads(found, start)
        for frame, read in zip(found[start:], reads, strict=False):
            request = v2.decode_request(frame)
            assert isinstance(request, v2.ReadRequest) and request.master_key is None
            assert read == (request.ledger_id, request.entry_id)
    plain = [v2.encode_read(number, -number, high_priority=number % 2 == 1) for number in range(5)]
    frames = [memoryview(one)[4:] for one in plain]
    assert v2.decode_unfenced_reads([*frames, memoryview(b"x"), *frames], 1) == [(1, -1), (2, -2), (3, -3), (4, -4)]


@given(st.lists(st.binary(max_size=40), max_size=6), st.booleans())
def test_answers_to_reads_are_the_same_bytes_joined_or_not(bodies: list[bytes], large: bool) -> None:
    bodies = [body * (1_000 if large else 1) for body in bodies]
    reads = [(number, number - 1) for number in range(len(bodies))]
    alone = [v2.encode_read_response(V2Status.OK, *read, body) for read, body in zip(reads, bodies, strict=True)]
    assert b"".join(v2.encode_found_reads(reads, bodies)) == b"".join(part for one in alone for part in one)


def test_a_control_add_is_a_normal_one_with_high_priority() -> None:
    header = v2.EntryHeader(7, 3, 2, 10)
    plain = v2.encode_add(header, digest_for("CRC32C", PASSWORD), KEY, [b"a", b"b"])
    frame = b"".join(v2.as_control(plain))
    assert frame[:8] == b"".join(plain)[:6] + struct.pack(">H", v2.FLAG_HIGH_PRIORITY)
    assert frame[8:] == b"".join(plain)[8:]
    for found, control in ((frame, True), (b"".join(plain), False)):
        run = v2.decode_add_run([memoryview(found)[4:]], 0)
        request = v2.decode_request(memoryview(found)[4:])
        assert isinstance(request, v2.AddRequest) and run is not None
        assert (run.control, request.control, request.recovery) == (control, control, False)
    recovery = b"".join(v2.encode_add(header, digest_for("CRC32C", PASSWORD), KEY, [b"a"], recovery=True))
    request = v2.decode_request(memoryview(recovery)[4:])
    assert isinstance(request, v2.AddRequest) and request.recovery and not request.control


def test_what_is_no_add_begins_no_run() -> None:
    read = memoryview(v2.encode_read(1, 2))[4:]
    assert v2.decode_add_run([read, read], 0) is None
    assert v2.decode_add_run([memoryview(b"x"), read], 0) is None


def test_acknowledgements_of_a_run_are_those_of_its_adds() -> None:
    alone = [v2.encode_add_response(V2Status.OK, 7, entry) for entry in (3, 4, 9)]
    assert v2.encode_add_acks(7, [3, 4, 9]) == alone


@given(st.lists(st.binary(max_size=40), max_size=6), st.booleans())
def test_batches_are_the_same_bytes_joined_or_not(bodies: list[bytes], large: bool) -> None:
    bodies = [body * (1_000 if large else 1) for body in bodies]
    frame = b"".join(v2.encode_batch_read_response(V2Status.OK, 1, 2, 3, bodies))
    found = v2.decode_response(memoryview(frame)[4:])
    assert isinstance(found, v2.BatchReadResponse)
    assert (found[:4], [bytes(body) for body in found.bodies]) == ((V2Status.OK, 1, 2, 3), bodies)


@pytest.mark.parametrize("kind", ["CRC32C", "CRC32", "HMAC", "DUMMY"])
@pytest.mark.parametrize("payload", [[], [b""], [b"data"], [b"da", bytearray(b"ta"), memoryview(b"more")]])
def test_a_body_is_what_its_add_would_have_stored(kind: str, payload: list[bytes]) -> None:
    digest, header = digest_for(kind, PASSWORD), v2.EntryHeader(7, 9, 5, 99)
    body = v2.encode_body(header, digest, payload)
    for recovery in (False, True):
        added = b"".join(v2.encode_add(header, digest, KEY, payload, recovery=recovery))
        assert b"".join(v2.encode_add_body(body, KEY, recovery=recovery)) == added
        request = v2.decode_request(memoryview(added)[4:])
        assert isinstance(request, v2.AddRequest) and bytes(request.body) == b"".join(body)
    small = v2.encode_small_add(*header, digest, KEY, payload, sum(map(len, payload)))
    assert small == b"".join(v2.encode_add(header, digest, KEY, payload)), "the same frame in one buffer"


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**62), st.binary(max_size=3)), min_size=1))
def test_columns_of_answers_are_their_beginnings(answers: list[tuple[int, int, bytes]]) -> None:
    expected = [(2, v2.OP_READ, 0, code, 7, entry_id) for code, entry_id, _ in answers]
    packed = [struct.pack(">BBHIqq", *row) + rest for row, (_, _, rest) in zip(expected, answers, strict=True)]
    assert list(v2.answer_columns([memoryview(one) for one in packed])) == expected


@pytest.mark.parametrize("sizes", [[23], [23, 25], [24, 0], [24, 24, 1, 47]])
def test_columns_of_answers_that_are_cut_short_are_protocol_errors(sizes: list[int]) -> None:
    with pytest.raises(ProtocolError, match="at least 24 bytes"):
        list(v2.answer_columns([memoryview(bytes(size)) for size in sizes]))


def test_holds_come_back_and_a_wrong_length_is_refused() -> None:
    frame = v2.encode_hold(7, KEY, 12)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    request = v2.decode_request(memoryview(frame)[4:])
    assert request == v2.HoldRequest(0, KEY, 7, 12)
    for status in (V2Status.OK, V2Status.UNAUTHORIZED):
        answer = v2.decode_response(memoryview(v2.encode_hold_response(status, 7, 12))[4:])
        assert answer == v2.HoldResponse(status, 7, 12)
    assert v2.encode_refusal(v2.HoldRequest(0, KEY, 7, 12), V2Status.UNAUTHORIZED) == v2.encode_hold_response(
        V2Status.UNAUTHORIZED, 7, 12
    )
    with pytest.raises(ProtocolError, match="expected a hold of 40 bytes, found 39"):
        v2.decode_request(memoryview(frame)[4:-1])
    with pytest.raises(ProtocolError, match="hold response"):
        v2.decode_response(memoryview(v2.encode_hold_response(V2Status.OK, 7, 12) + b"x")[4:])
