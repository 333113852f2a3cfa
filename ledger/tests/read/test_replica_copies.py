"""Copies for a bookie that lacks some, on scripted bookies: only what is whole, only what is lacking, and nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from boki_common import limits
from boki_common.bookkeeper.digests import CRC32C
from boki_common.bookkeeper.entry_body import verify_body
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import LedgerError, Unauthorized, Unreachable
from boki_common.ids import BookieId
from boki_ledger.client import LedgerClient
from boki_ledger.read import replica_copies
from boki_ledger.read.replica_copies import Copied, ReplicaCopies
from boki_ledger.testing.held_messages import Message
from boki_ledger.testing.ledgers import QUICK, Ledgers, deliver, turns

COUNT = 12
B1, B2, B3 = map(BookieId, ("b1", "b2", "b3"))


async def closed_ledger(ledgers: Ledgers, *, count: int = COUNT) -> int:
    return await ledgers.closed(*(b"entry %d" % number for number in range(count)), password=b"secret")


@pytest.fixture
async def ledger_id(ledgers: Ledgers) -> int:
    return await closed_ledger(ledgers)


async def copies(
    ledgers: Ledgers, ledger_id: int, bookie: BookieId = B1, *, client: LedgerClient | None = None
) -> ReplicaCopies:
    made = client or ledgers.client
    return made.copies(ledger_id, await made.metadata_of(ledger_id), bookie)


async def make_whole(ledgers: Ledgers, ledger_id: int, bookie: BookieId = B1) -> Copied:
    return await (await copies(ledgers, ledger_id, bookie)).make_whole(range(COUNT))


def lose(ledgers: Ledgers, ledger_id: int, bookie: BookieId, *entries: int) -> None:
    for entry_id in entries:
        del ledgers.bookies[bookie].entries[ledger_id][entry_id]


def asked(ledgers: Ledgers, kind: str) -> list[Message]:
    return [one for one in ledgers.bookies.seen if one.kind == kind and not one.answer]


async def test_what_is_lacking_is_copied_bit_by_bit_and_nothing_else(ledgers: Ledgers, ledger_id: int) -> None:
    lose(ledgers, ledger_id, B1, 3, 4, 9)
    before = await ledgers.metadata(ledger_id)
    swaps = sum(store.swaps for store in ledgers.stores)
    done = await make_whole(ledgers, ledger_id)
    assert (done.held, done.copied, done.lost.total, done.unanswered.total) == (COUNT - 3, 3, 0, 0)
    assert done.copied_bytes == sum(len(ledgers.bookies[B2].entries[ledger_id][one]) for one in (3, 4, 9))
    assert ledgers.bookies[B1].entries[ledger_id] == ledgers.bookies[B2].entries[ledger_id]
    assert [(one.bookie, one.entry_id, one.recovery) for one in asked(ledgers, "add")] == [
        ("b1", entry_id, True) for entry_id in (3, 4, 9)
    ]
    assert await ledgers.metadata(ledger_id) == before
    assert sum(store.swaps for store in ledgers.stores) == swaps, "metadata is not written"
    assert not any(one.fence for one in ledgers.bookies.seen), "and nothing is fenced"


async def test_a_second_run_finds_everything_and_sends_nothing(ledgers: Ledgers, ledger_id: int) -> None:
    lose(ledgers, ledger_id, B1, 5)
    await make_whole(ledgers, ledger_id)
    ledgers.bookies.seen.clear()
    done = await make_whole(ledgers, ledger_id)
    assert (done.held, done.copied) == (COUNT, 0)
    assert {one.kind for one in ledgers.bookies.seen} == {"list"}


async def test_a_bookie_that_knows_nothing_of_the_ledger_gets_all_of_it(ledgers: Ledgers, ledger_id: int) -> None:
    del ledgers.bookies[B1].entries[ledger_id]
    done = await make_whole(ledgers, ledger_id)
    assert (done.held, done.copied) == (0, COUNT)
    assert not any(one.bookie == "b1" for one in asked(ledgers, "read"))


async def test_a_list_that_goes_beyond_the_ledger_changes_nothing(ledgers: Ledgers, ledger_id: int) -> None:
    lose(ledgers, ledger_id, B1, 3, COUNT - 1)
    ledgers.bookies[B1].entries[ledger_id].update(dict.fromkeys((COUNT, COUNT + 1, 50_000_000), b"beyond the end"))
    done = await make_whole(ledgers, ledger_id)
    assert (done.held, done.copied) == (COUNT - 2, 2)


async def test_a_bookie_in_limbo_is_asked_for_every_entry(ledgers: Ledgers, ledger_id: int) -> None:
    """It gives no list, since a reader would take what is not on it for absent."""
    lose(ledgers, ledger_id, B1, 2)
    ledgers.bookies.damage(B1, ledger_id, 7)
    ledgers.bookies.answer(V2Status.UNKNOWN_LEDGER_STATE, bookie="b1", kind="list")
    done = await make_whole(ledgers, ledger_id)
    assert (done.held, done.copied) == (COUNT - 2, 2), "what was lost, and a copy whose digest is wrong"
    assert ledgers.bookies[B1].entries[ledger_id] == ledgers.bookies[B2].entries[ledger_id]


async def test_damaged_copies_are_not_passed_on(ledgers: Ledgers, ledger_id: int) -> None:
    lose(ledgers, ledger_id, B1, 3, 4)
    ledgers.bookies.damage(B2, ledger_id, 3, 4)
    ledgers.bookies.damage(B3, ledger_id, 4)
    done = await make_whole(ledgers, ledger_id)
    assert (done.copied, done.lost, done.unanswered.total) == (1, (1, [4]), 0)
    stored = memoryview(ledgers.bookies[B1].entries[ledger_id][3])
    verify_body(stored, ledger_id, 3, CRC32C)
    assert 4 not in ledgers.bookies[B1].entries[ledger_id]


async def test_what_every_peer_denies_is_lost_and_what_one_does_not_answer_may_come_back(ledgers: Ledgers) -> None:
    ledger_id = await closed_ledger(ledgers)
    for bookie in (B1, B2, B3):
        lose(ledgers, ledger_id, bookie, 6)
    lose(ledgers, ledger_id, B1, 8)
    lose(ledgers, ledger_id, B2, 8)
    ledgers.bookies.answer(V2Status.IO_ERROR, bookie="b3", kind="read", entry_id=8)
    done = await make_whole(ledgers, ledger_id)
    assert (done.lost, done.unanswered) == ((1, [6]), (1, [8]))


async def test_peers_of_a_striped_ledger_are_those_of_the_write_set(ledgers: Ledgers) -> None:
    writer = await ledgers.striped(3, 2, 1)
    for number in range(COUNT):
        await writer.append(b"%d" % number)
    await turns()
    await writer.close()
    owed = [entry_id for entry_id in range(COUNT) if entry_id % 3 != 1]
    lose(ledgers, writer.ledger_id, B1, *owed)
    ledgers.bookies.seen.clear()
    done = await (await copies(ledgers, writer.ledger_id)).make_whole(owed)
    assert (done.copied, sorted(ledgers.bookies[B1].entries[writer.ledger_id])) == (len(owed), owed)
    assert {(one.entry_id, one.bookie) for one in asked(ledgers, "read")} == {
        (entry_id, "b2" if entry_id % 3 == 0 else "b3") for entry_id in owed
    }


async def test_a_bookie_that_is_away_is_reported_at_once(ledgers: Ledgers, ledger_id: int) -> None:
    ledgers.bookies.crash("b1")
    with pytest.raises(Unreachable, match="b1"):
        await make_whole(ledgers, ledger_id)


async def test_a_bookie_that_returns_is_sent_again_what_it_did_not_acknowledge(ledgers: Ledgers) -> None:
    ledger_id = await closed_ledger(ledgers)
    lose(ledgers, ledger_id, B1, *range(COUNT))
    held = ledgers.bookies.hold(bookie="b1", kind="add")
    making = asyncio.ensure_future(make_whole(ledgers, ledger_id))
    await turns()
    ledgers.bookies.crash("b1")
    await deliver(held)
    assert not ledgers.bookies[B1].entries[ledger_id], "what was on its way is gone"
    ledgers.bookies.restart("b1")
    assert (await making).copied == COUNT
    assert ledgers.bookies[B1].entries[ledger_id] == ledgers.bookies[B2].entries[ledger_id]


async def test_a_bookie_that_does_not_come_back_is_given_up(ledgers: Ledgers, ledger_id: int) -> None:
    lose(ledgers, ledger_id, B1, 3)
    client = await ledgers.other_client(replace(QUICK, answer_timeout_s=0.25))
    ledgers.bookies.hold(bookie="b1", kind="add")
    with pytest.raises(Unreachable, match="begin again"):
        await (await copies(ledgers, ledger_id, client=client)).make_whole(range(COUNT))
    assert not ledgers.bookies.channels, "the channel is closed"


async def test_a_refusal_for_a_while_is_waited_for_and_a_lasting_one_is_reported(ledgers: Ledgers) -> None:
    ledger_id = await closed_ledger(ledgers)
    lose(ledgers, ledger_id, B1, 3)
    forget = ledgers.bookies.answer(V2Status.TOO_MANY_REQUESTS, bookie="b1", kind="add")
    retrying = await ledgers.other_client(replace(QUICK, retry_for_s=30.0))
    making = asyncio.ensure_future((await copies(ledgers, ledger_id, client=retrying)).make_whole(range(COUNT)))
    async with asyncio.timeout(10):
        while len(asked(ledgers, "add")) < 3:
            await asyncio.sleep(0)
    forget()
    assert (await making).copied == 1
    lose(ledgers, ledger_id, B1, 3)
    ledgers.bookies.answer(V2Status.READ_ONLY, bookie="b1", kind="add")
    with pytest.raises(LedgerError, match="READ_ONLY"):
        await make_whole(ledgers, ledger_id)


async def test_a_bookie_with_another_password_is_not_forced(ledgers: Ledgers, ledger_id: int) -> None:
    lose(ledgers, ledger_id, B1, 3)
    ledgers.bookies[B1].keys[ledger_id] = b"another key of 20 by"
    with pytest.raises(Unauthorized):
        await make_whole(ledgers, ledger_id)


async def test_few_entries_and_bytes_are_under_way_at_once(ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 3 * limits.LEDGER_COPIES_AT_ONCE
    ledger_id = await closed_ledger(ledgers, count=count)
    lose(ledgers, ledger_id, B1, *range(count))
    reads = ledgers.bookies.hold(bookie="b2", kind="read")
    sizes: list[int] = []
    making = asyncio.ensure_future((await copies(ledgers, ledger_id)).make_whole(range(count), looked_at=sizes.append))
    await turns()
    assert len(reads) == limits.LEDGER_COPIES_AT_ONCE
    size = len(ledgers.bookies[B2].entries[ledger_id][0])
    monkeypatch.setattr(limits, "LEDGER_COPY_BYTES", 3 * size)
    adds = ledgers.bookies.hold(bookie="b1", kind="add")
    await deliver(reads)
    assert len(adds) == 3
    adds.release()
    assert (await making).copied == len(sizes) == count
    assert sum(sizes) == sum(map(len, ledgers.bookies[B2].entries[ledger_id].values()))


async def test_very_many_uncopied_entries_are_counted_and_some_are_named(
    ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_copies, "NAMED_LIMIT", 5)
    ledger_id = await closed_ledger(ledgers)
    for bookie in (B1, B2, B3):
        lose(ledgers, ledger_id, bookie, *range(COUNT))
    assert (await make_whole(ledgers, ledger_id)).lost == (COUNT, list(range(5)))


async def test_of_a_ledger_that_is_not_closed_only_earlier_fragments_are_copied(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    with pytest.raises(AssertionError, match="entries are fixed below 0"):
        await (await copies(ledgers, writer.ledger_id)).make_whole([0])
    await writer.append(b"one")
    ledgers.bookies.register("b1", "b2", "b3", "b4")
    ledgers.bookies.crash("b1")
    for payload in (b"two", b"three"):
        await writer.append(payload)
    await turns()
    metadata = await ledgers.metadata(writer.ledger_id)
    first = metadata.ensembles[-1][0]
    assert first > 0
    await (await copies(ledgers, writer.ledger_id, BookieId("b5"))).make_whole(range(first))
    assert ledgers.bookies.stored("b5", writer.ledger_id) == list(range(first))
    with pytest.raises(AssertionError, match=f"entries are fixed below {first}"):
        await (await copies(ledgers, writer.ledger_id, BookieId("b5"))).make_whole([first])


async def test_an_entry_is_lost_only_by_the_newest_metadata(ledgers: Ledgers, ledger_id: int) -> None:
    """Its copies moved while they were asked for."""
    stale = await copies(ledgers, ledger_id)
    ledgers.bookies["b4"].entries[ledger_id] = dict(ledgers.bookies[B2].entries[ledger_id])
    moved = ((0, tuple(map(BookieId, ("b1", "b4", "b5")))),)
    await ledgers.change(ledger_id, ensembles=moved)
    for bookie in (B1, B2, B3):
        del ledgers.bookies[bookie].entries[ledger_id]
    done = await stale.make_whole(range(COUNT))
    assert (done.copied, done.lost.total, done.unanswered.total) == (COUNT, 0, 0)
