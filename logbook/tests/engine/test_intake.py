"""SDKs that are slower than what they are answered, one that takes nothing, and one that begins named writers unasked."""

from __future__ import annotations

import pytest
from tests.engine.test_server import ALICE, Served, query, run, served

from boki_common import limits
from boki_common.engine import engine_protocol as wire
from boki_common.engine.answers import AnswerRow, Answers
from boki_common.engine.engine_protocol import Verdict
from boki_common.errors import ConnectionLost, Overloaded, TooManyWriters
from boki_common.ids import Position
from boki_common.records.record_batch import RUN_NAMED
from boki_logbook.testing.cluster import RecordSpec, RunSpec
from boki_logbook.writers import verdict

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


async def test_a_peer_that_asks_for_no_writer_does_not_fill_a_book_with_named_ones(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict, "BOOK_NAMED_WRITERS", 1)
    monkeypatch.setattr(verdict, "NAMED_WRITERS_SPARED", 1)
    sdk, other = await served.sdk(), await served.sdk()

    def named(name: bytes, number: int = 1) -> RunSpec:
        return RunSpec(1, name.ljust(16), number, (RecordSpec(data=b"x"),), flags=RUN_NAMED)

    for name in (b"a", b"b"):  # one more than admitted: it may have been, at the same time as another
        sdk.append(named(name))
    await sdk.answers(2)
    sdk.append(named(b"a", 2), named(b"b", 2))
    assert (await sdk.answers(4))[-1].verdict == Verdict.COMMITTED, "those that are there go on"
    sdk.append(named(b"c"))
    assert isinstance(await sdk.lost, TooManyWriters)
    other.append(run(1, b"x"))
    assert (await other.answers(1))[0].verdict == Verdict.COMMITTED
    assert len(served.core.state.verdicts.writers) == 3
