"""Both protocols' servers fed with damaged and invented frames over real connections: each is answered, or its connection ends.

A frame that keeps its protocol's rules is answered, so an honest request behind it is answered too; one that does not
ends its connection. The bookie serves on either way.
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.serve.requester import serving

from boki_common.bookkeeper import v2, v3
from boki_common.bookkeeper.status import V2Status
from boki_common.bookkeeper.v3_messages import (
    AddRequest,
    BookieInfoRequest,
    ForceRequest,
    ListEntriesRequest,
    ReadLacRequest,
    ReadRequest,
    WriteLacRequest,
)
from boki_common.runtime.memory_disk import MemoryDisk
from boki_common.runtime.process import loop_factory

CASES: Final = (
    "add-crc32c", "add-hmac", "read-crc32c", "read-last", "fence-read", "fence-read-unknown-ledger", "recovery-add",
)  # fmt: skip
V2_CASES: Final = (*CASES, "batch-setup", "batch-read-0", "batch-read-fence")
V3_CASES: Final = (
    *CASES,
    "force-ledger",
    "list-of-entries",
    "write-lac",
    "read-lac",
    "bookie-info",
    "add-deferred-sync",
)
HONEST_LEDGER: Final = 77
TIMEOUT_S: Final = 20.0
EXAMPLES: Final = 40 if settings().max_examples <= 100 else settings().max_examples // 2
"""Fewer than of a test without sockets; the nightly run looks longer."""

NUMBERS: Final = st.one_of(
    st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1), st.sampled_from((2030, 2**62, -(2**63)))
)
_NUMBER: Final = Struct(">q")


@st.composite
def invented_v2(draw: st.DrawFn) -> bytes:
    """A v2 request with the length that its opcode asks for, and any numbers."""
    opcode, flags = draw(st.sampled_from((1, 2, 7))), draw(st.integers(0, 7))
    numbers = b"".join(_NUMBER.pack(draw(NUMBERS)) for _ in range(4))
    key = draw(st.sampled_from((bytes(20), b"k" * 20)))
    head = bytes((draw(st.sampled_from((2, 2, 2, 3))), opcode, 0, flags))
    if opcode == 1:
        return head + key + numbers + draw(st.binary(max_size=40))
    fence = key if flags & v2.FLAG_FENCE else b""
    if opcode == 2:
        return head + numbers[:16] + fence
    return head + numbers[:24] + draw(st.binary(min_size=12, max_size=12)) + fence


@st.composite
def invented_v3(draw: st.DrawFn) -> bytes:
    """A v3 request with any numbers; long polls do not wait."""
    numbers = st.integers(-(2**63), 2**63 - 1)
    txn_id, ledger_id, entry_id = draw(st.integers(0, 2**64 - 1)), draw(NUMBERS), draw(NUMBERS)
    key = draw(st.one_of(st.none(), st.just(b"k" * 20)))
    kind = draw(st.sampled_from(("read", "poll", "add", "force", "list", "info", "lac", "write lac")))
    request: v3.KnownRequest
    if kind == "read":
        request = ReadRequest(txn_id, None, ledger_id, entry_id, key, False, -1, 0)
    elif kind == "poll":
        request = ReadRequest(txn_id, None, ledger_id, entry_id, None, True, max(-1, entry_id), 0)
    elif kind == "add":
        body = _NUMBER.pack(ledger_id) + _NUMBER.pack(entry_id) + draw(st.binary(min_size=16, max_size=60))
        request = AddRequest(txn_id, None, ledger_id, entry_id, b"k" * 20, memoryview(body), draw(st.booleans()), False)
    elif kind == "force":
        request = ForceRequest(txn_id, None, ledger_id)
    elif kind == "list":
        request = ListEntriesRequest(txn_id, None, ledger_id)
    elif kind == "info":
        request = BookieInfoRequest(txn_id, None, draw(numbers))
    elif kind == "lac":
        request = ReadLacRequest(txn_id, None, ledger_id)
    else:
        body = _NUMBER.pack(ledger_id) + _NUMBER.pack(entry_id) + draw(st.binary(max_size=20))
        request = WriteLacRequest(txn_id, None, ledger_id, entry_id, b"k" * 20, memoryview(body))
    return v3.encode_request(request)[4:]


@st.composite
def altered(draw: st.DrawFn, frames: list[bytes]) -> bytes:
    """A recorded frame, as it is or with a few bytes changed, put in or cut off."""
    frame = bytearray(draw(st.sampled_from(frames)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(frame)))
        if draw(st.booleans()):
            frame[at : at + 1] = draw(st.binary(max_size=3))
        else:
            del frame[at + draw(st.integers(0, 8)) :]
    return bytes(frame)


async def feed(world: Any, stream: bytes, *, then_leaves: bool = False) -> None:
    """Sends the stream to a new bookie, then an honest read; both the sender and a bystander must get what is theirs.

    A stream may end within a frame, for the rest of which a bookie waits: then its sender leaves.
    """
    disk = MemoryDisk()
    storage = await world.open(disk)
    try:
        async with asyncio.timeout(TIMEOUT_S), serving(storage, world, disk) as served:
            bystander = await served.connect()
            bystander.connection.send(*v2.encode_add_body([world.body(HONEST_LEDGER, 0)], world.key))
            assert await bystander.frames.get() is not None
            sender = await served.connect()
            sender.connection.send(stream, v2.encode_read(HONEST_LEDGER, 0))
            if then_leaves:
                sender.connection.close()
            while (frame := await sender.frames.get()) is not None and not _is_honest(frame):
                pass
            bystander.connection.send(v2.encode_read(HONEST_LEDGER, 0))
            answer = await bystander.frames.get()
            assert answer is not None and _is_honest(answer)
            assert not storage.failed.done()
    finally:
        await world.close()


def _is_honest(frame: bytes) -> bool:
    if frame[:2] != bytes((v2.VERSION, v2.OP_READ)):
        return False
    answer = v2.decode_response(memoryview(frame))
    assert isinstance(answer, v2.ReadResponse)
    return (answer.ledger_id, answer.entry_id) == (HONEST_LEDGER, 0) and answer.status is V2Status.OK


def framed(frames: list[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


@pytest.mark.parametrize("version", ["v2", "v3"])
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_frame_is_answered_or_ends_its_connection(
    world: Any, recorded: Any, version: str, data: st.DataObject
) -> None:
    cases = V2_CASES if version == "v2" else V3_CASES
    known = [request[4:] for case in cases for request, _ in recorded(f"{version}-{case}")]
    invented = invented_v2() if version == "v2" else invented_v3()
    frames = data.draw(st.lists(st.one_of(invented, altered(known)), max_size=12))
    _run(feed(type(world)(), framed(frames)))


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(stream=b"\x00\x25\x7f\xcd\xcd\xc8\xea")  # a length below the limit, and more than ever comes
@given(stream=st.one_of(st.binary(max_size=300), st.lists(st.binary(max_size=40), max_size=8).map(framed)))
def test_a_stream_of_anything_ends_its_connection_at_most(world: Any, stream: bytes) -> None:
    """A length that is over the limit ends it; one that is not waits for its bytes, and the end of the stream ends that."""
    _run(feed(type(world)(), stream + b"\xff" * 400, then_leaves=True))


def _run(work: Any) -> None:
    """In a loop and a world of its own: the fixture only lends its class."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(work)
