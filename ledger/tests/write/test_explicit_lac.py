"""An idle writer's LAC reaches bookies and readers by itself: once, late enough, and never in the way."""

from __future__ import annotations

from dataclasses import replace

from boki_common.bookkeeper.digests import CRC32C
from boki_common.bookkeeper.status import V2Status
from boki_ledger.client import LedgerClient
from boki_ledger.rules.lac_body import decode_lac, encode_lac
from boki_ledger.testing.ledgers import QUICK, Ledgers, turns, until
from boki_ledger.write.writer import LedgerWriter

SOON = replace(QUICK, explicit_lac_ms=1.0)


async def talkative(ledgers: Ledgers) -> LedgerClient:
    return await ledgers.other_client(SOON)


def written(ledgers: Ledgers, kind: str = "write_lac") -> list[str]:
    """Bookies that were sent a LAC, in order."""
    return [message.bookie for message in ledgers.bookies.seen if message.kind == kind and not message.answer]


def counted(writer: LedgerWriter, outcome: str) -> float:
    return float(writer._ports.metrics.explicit_lacs.labels(outcome).value)


def all_know(ledgers: Ledgers, writer: LedgerWriter, lac: int) -> bool:
    """Whether every bookie got this LAC, however often it got a lower one on a slow machine."""
    return all(ledgers.bookies[bookie].lac(writer.ledger_id) == lac for bookie in ("b1", "b2", "b3"))


async def test_a_tailer_sees_the_last_entry_without_another_add_or_a_close(ledgers: Ledgers) -> None:
    writer = await (await talkative(ledgers)).create()
    await writer.append(b"0")
    await writer.append(b"1")
    reader = await ledgers.client.open(writer.ledger_id, recover=False)
    await until(lambda: all_know(ledgers, writer, 1))
    assert await reader.read_lac() == 1
    assert [bytes(one) for one in await reader.read(0, 1)] == [b"0", b"1"]
    for bookie in ("b1", "b2", "b3"):
        body = ledgers.bookies[bookie].lacs.explicit[writer.ledger_id]
        assert decode_lac(body, writer.ledger_id, CRC32C) == 1


async def test_it_is_sent_once_for_many_entries_and_not_while_the_lac_moves(ledgers: Ledgers) -> None:
    writer = await (await talkative(ledgers)).create()
    for _ in range(100):
        await writer.append(b"x")
    await writer.append(b"last")
    await until(lambda: all_know(ledgers, writer, 100))
    assert len(written(ledgers)) <= 33, "a write now and then, far from one per entry"


async def test_it_can_be_switched_off(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    await writer.append(b"0")
    assert writer._explicit_lac.waiting and writer._explicit_lac._timer is None
    await turns()
    assert written(ledgers) == []


async def test_failures_are_counted_and_the_writer_goes_on(ledgers: Ledgers) -> None:
    ledgers.bookies.answer(V2Status.IO_ERROR, kind="write_lac", bookie="b1")
    writer = await (await talkative(ledgers)).create()
    ledgers.bookies.crash("b2")
    await writer.append(b"0")
    await until(lambda: counted(writer, "failed") == 2)
    assert counted(writer, "sent") == 1
    assert await writer.append(b"1") == 1
    reader = await ledgers.client.open(writer.ledger_id, recover=False)
    assert await reader.read_lac() >= 0, "the next add carries it"


async def test_a_closed_or_abandoned_writer_sends_nothing_more(ledgers: Ledgers) -> None:
    client = await ledgers.other_client(replace(QUICK, explicit_lac_ms=60_000.0))
    writer, other = await client.create(), await client.create()
    await writer.append(b"0")
    await other.append(b"0")
    assert writer._explicit_lac._timer is not None and other._explicit_lac._timer is not None
    await writer.close()
    other.abandon()
    assert writer._explicit_lac._timer is None and other._explicit_lac._timer is None
    assert written(ledgers) == []


async def test_the_lac_of_a_reader_never_falls(ledgers: Ledgers) -> None:
    writer = await (await talkative(ledgers)).create()
    for _ in range(3):
        await writer.append(b"x")
    await until(lambda: all_know(ledgers, writer, 2))
    reader = await ledgers.client.open(writer.ledger_id, recover=False)
    assert await reader.read_lac() == 2
    for bookie in ("b1", "b2", "b3"):
        ledgers.bookies[bookie].lacs.explicit.clear()
    assert await reader.read_lac() == 2


async def test_a_lac_that_is_damaged_or_of_another_ledger_is_passed_over(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    for _ in range(3):
        await writer.append(b"x")
    body = encode_lac(writer.ledger_id, 2, CRC32C)
    ledgers.bookies["b1"].lacs.explicit[writer.ledger_id] = body[:-1] + bytes([body[-1] ^ 1])
    ledgers.bookies["b2"].lacs.explicit[writer.ledger_id] = encode_lac(writer.ledger_id + 1, 2, CRC32C)
    reader = await ledgers.client.open(writer.ledger_id, recover=False)
    assert await reader.read_lac() == 1
