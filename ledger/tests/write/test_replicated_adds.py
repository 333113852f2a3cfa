"""What is sent to whom: every replica gets each entry once, whatever the turn of the loop brought."""

from __future__ import annotations

from collections import Counter

import pytest

from boki_common.errors import ProtocolError
from boki_common.ids import BookieId
from boki_ledger.rules.write_set import write_set
from boki_ledger.testing.ledgers import Ledgers, submit, turns
from boki_ledger.write.replicated_adds import EARLY_SEND_BYTES
from boki_ledger.write.writer import LedgerWriter


def sent(ledgers: Ledgers) -> Counter[tuple[str, int]]:
    """How often which (bookie, entry) was sent."""
    return Counter((one.bookie, one.entry_id) for one in ledgers.bookies.seen if one.kind == "add" and not one.answer)


def placed(writer: LedgerWriter, size: int, write_quorum: int, entries: range) -> Counter[tuple[str, int]]:
    """Where they belong."""
    ensemble = writer._adds.ensemble
    return Counter((ensemble[slot], entry) for entry in entries for slot in write_set(entry, size, write_quorum))


@pytest.mark.parametrize(("size", "write_quorum"), [(1, 1), (3, 3), (3, 2), (5, 3), (5, 1)])
@pytest.mark.parametrize("entry_bytes", [1, EARLY_SEND_BYTES // 4])
async def test_what_one_turn_submits_is_sent_once_to_each_replica(
    ledgers: Ledgers, size: int, write_quorum: int, entry_bytes: int
) -> None:
    ledgers.bookies.register("b1", "b2", "b3", "b4", "b5")
    writer = await ledgers.striped(size, write_quorum, 1)
    payload = bytes(entry_bytes)
    for entry in range(7):
        assert writer.submit(payload) == entry
    await turns()
    assert writer.submit(payload) == 7
    await turns()
    assert writer.last_acked == 7
    assert sent(ledgers) == placed(writer, size, write_quorum, range(8))


@pytest.mark.parametrize("write_quorum", [3, 2])
async def test_a_bookie_that_returns_within_a_turn_gets_what_the_turn_brought_once(
    ledgers: Ledgers, write_quorum: int
) -> None:
    writer = await ledgers.striped(3, write_quorum, write_quorum)
    ledgers.bookies.crash("b1")
    await turns()
    await submit(writer, b"before")
    ledgers.bookies.seen.clear()
    writer.submit(b"1")
    writer.submit(b"2")
    ledgers.bookies.restart("b1")
    channel = writer._adds._slots[0].channel
    assert channel is not None and channel.up
    await submit(writer, b"3")
    assert writer.last_acked == 3
    missed = Counter(one for one in placed(writer, 3, write_quorum, range(1)) if one[0] == "b1")
    assert sent(ledgers) == placed(writer, 3, write_quorum, range(1, 4)) + missed


async def test_a_bookie_that_leaves_within_a_turn_is_sent_what_it_missed_when_it_returns(ledgers: Ledgers) -> None:
    writer = await ledgers.striped(3, 3, 3)
    writer.submit(b"0")
    ledgers.bookies.crash("b2")
    await turns()
    assert writer.last_acked == -1 and ("b2", 0) not in sent(ledgers)
    ledgers.bookies.restart("b2")
    await turns()
    assert writer.last_acked == 0
    assert sent(ledgers) == placed(writer, 3, 3, range(1))


async def test_what_a_bookie_acknowledged_before_it_went_wrong_counts(ledgers: Ledgers) -> None:
    writer = await ledgers.striped(3, 3, 2)
    held = [ledgers.bookies.hold(bookie=bookie) for bookie in ("b2", "b3")]
    await submit(writer, b"0")
    assert writer.last_acked == -1
    with pytest.raises(ProtocolError, match="nobody sent"):
        writer._adds._slots[1].adds_answered([(0, 1), (5, 1)], [])
    assert writer.last_acked == 0
    assert list(map(len, held)) == [1, 1]


async def test_whether_some_slot_fails_follows_failures_returns_and_replacements(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    adds = writer._adds
    ledgers.bookies.crash("b1")
    assert adds.some_fail and adds.failing_slots() == [0]
    ledgers.bookies.restart("b1")
    assert not adds.some_fail
    ledgers.bookies.crash("b1")
    ledgers.bookies["b4"].up = False
    adds.acks.frozen = True
    adds.replace({0: BookieId("b4")})
    assert not adds.some_fail, "who came instead did not fail yet"
    await turns()
    assert adds.some_fail and writer.failing_bookies == ["b4"]
