"""SDKs that are slower than what they are answered, and one that takes nothing."""

from __future__ import annotations

import pytest
from tests.engine.test_server import ALICE, Served, query, run, served

from boki_common import limits
from boki_common.engine import engine_protocol as wire
from boki_common.engine.answers import AnswerRow, Answers
from boki_common.engine.engine_protocol import Verdict
from boki_common.errors import ConnectionLost, Overloaded
from boki_common.ids import Position

__all__ = ["served"]


async def test_who_takes_no_answers_is_not_read_from_and_dropped_in_the_end(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    sdk = await served.sdk()
    monkeypatch.setattr(limits, "CONNECTION_UNSENT_BYTES", limits.MIB)
    monkeypatch.setattr(limits, "REQUEST_AGE_S", 0.05)
    sdk.peer.connection.pause_reading()
    (connection,) = served.connections
    for _ in range(16):
        connection.answers_forwarded(memoryview(bytes(limits.MIB)))
    with pytest.raises(Overloaded, match="bytes of answers wait"):
        connection.message_received(
            connection._peer, wire.OP_READ, 1, memoryview(b"".join(wire.encode_read({}, query())))
        )
    assert not connection._connection.closed
    await connection._connection.ended()
    sdk.peer.connection.resume_reading()
    assert isinstance(await sdk.lost, ConnectionLost)


async def test_any_number_of_answers_of_a_turn_reach_who_takes_them(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    sdk = await served.sdk()
    monkeypatch.setattr(limits, "CONNECTION_UNSENT_BYTES", limits.MIB)
    (connection,) = served.connections
    actual = tuple((tag, 9) for tag in range(1, 257))
    rows = [AnswerRow(1, ALICE, number, 0, 9, 1, Verdict.CONFLICT, actual) for number in range(1, 3_001)]
    answers = Answers([*rows])
    connection.answered({0: Position(1, 1)}, answers)
    connection.answered({0: Position(1, 1)}, Answers([*rows[:1]]))
    assert await sdk.answers(3_001) == [*rows, rows[0]]
    sdk.append(run(1, b"x"))
    assert (await sdk.answers(3_002))[-1].verdict == Verdict.COMMITTED, "it is read from again"
