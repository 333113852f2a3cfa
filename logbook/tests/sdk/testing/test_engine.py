"""The model behind the protocol: what it refuses, and when a read waits."""

from __future__ import annotations

import pytest

import boki
from boki.testing import MemoryCluster
from boki.testing._engine import ModelEngine
from boki.testing._model import Model
from boki_common.engine import engine_protocol as wire
from boki_common.errors import ProtocolError
from boki_common.ids import Position
from boki_common.runtime.process import SystemClock


async def test_unknown_opcodes_and_broken_bodies_are_refused() -> None:
    engine = ModelEngine(Model(), SystemClock())
    for opcode, body in ((99, b""), (wire.OP_READ, b""), (wire.OP_APPEND, b"\0\0x"), (wire.OP_READ_PREV_MANY, b"\0\0")):
        with pytest.raises(ProtocolError):
            engine.message_received(None, opcode, 1, memoryview(body))  # type: ignore[arg-type]


async def test_a_session_read_waits_for_its_view(memory: MemoryCluster) -> None:
    client = await memory.connect()
    await client.book(1).append(b"1")
    ahead = client.session()
    ahead._session.merge({0: Position(1, 3)})
    with pytest.raises(boki.CallTimeout):
        await ahead.book(1).check_tail(timeout=0.05)
    assert await ahead.book(1).check_tail(consistency="any", timeout=5) is not None
    await client.book(1).append(b"2")
    await client.book(1).append(b"3")
    record = await ahead.book(1).check_tail(timeout=5)
    assert record is not None
    assert record.data == b"3"
