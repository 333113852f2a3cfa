"""Recovery of a ledger whose writer was to add entries that somebody else has: they are made again where they belong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest
from tests.recover.recoveries import NAMES, begun, payloads_of, put, recovered, written
from tests.writers import RecordedAcks

from boki_common.bookkeeper import v2
from boki_common.bookkeeper.digests import digest_for
from boki_common.bookkeeper.entry_body import verify_body
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.errors import LedgerDataMissing, LedgerFenced, NotEnoughBookies, RecoveryFailed
from boki_common.runtime.ports import Buffer
from boki_ledger.read.reader import LedgerReader
from boki_ledger.testing.ledgers import QUICK, Ledgers, deliver, ensemble, submit, turns
from boki_ledger.write.writer import LedgerWriter

HAS, LACKS = "has", "lacks"


@pytest.fixture
async def writer(ledgers: Ledgers) -> LedgerWriter:
    """Of two acknowledged entries."""
    return await written(ledgers, b"0", b"1")


def headers_of(ledgers: Ledgers, metadata: LedgerMetadata, ledger_id: int, entry_id: int) -> list[v2.EntryHeader]:
    """Those of the good copies of an entry, where the metadata says that they are."""
    digest = digest_for(metadata.digest_type, metadata.password)
    return [
        verify_body(memoryview(ledgers.bookies[bookie].entries[ledger_id][entry_id]), ledger_id, entry_id, digest)[0]
        for bookie in ledgers.copies(ledger_id, metadata, entry_id)
    ]


# -- the bodies that are made


@pytest.mark.parametrize(("digest", "password"), [("CRC32C", b""), ("CRC32", b""), ("HMAC", b"secret"), ("DUMMY", b"")])
async def test_several_in_a_row_that_no_bookie_has_are_made_as_the_writer_would_have(
    ledgers: Ledgers, digest: str, password: bytes
) -> None:
    writer = await ledgers.client.create(digest=digest, password=password)
    for payload in (b"0", b"one"):
        await writer.append(payload)
    ledger_id, client = writer.ledger_id, await ledgers.other_client()
    carried: dict[int, Buffer] = {2: b"carried", 3: memoryview(b"also carried"), 4: b""}
    reader = await client.open(ledger_id, recover=True, floor=5, carried=carried, password=password)
    assert await payloads_of(reader) == [b"0", b"one", b"carried", b"also carried", b""]
    metadata = await ledgers.metadata(ledger_id)
    assert (metadata.state, metadata.last_entry, metadata.length) == (LedgerState.CLOSED, 4, 23)
    for entry_id, length in ((2, 11), (3, 23), (4, 23)):
        headers = headers_of(ledgers, metadata, ledger_id, entry_id)
        assert len(headers) >= 2
        assert set(headers) == {(ledger_id, entry_id, 0, length)}, "LAC as it is proven, and the length behind it"


async def test_the_length_before_the_first_is_read_when_nothing_else_is(ledgers: Ledgers) -> None:
    """A new fragment begins with what is carried: its bookies know nothing, and the entry before is in the old one."""
    writer = await written(ledgers, b"zero", b"1")
    fragments = (0, ensemble("b1", "b2", "b3")), (2, ensemble("b1", "b4", "b5"))
    await ledgers.change(writer.ledger_id, ensembles=fragments)
    reader = await recovered(ledgers, writer.ledger_id, {2: b"22"})
    assert await payloads_of(reader) == [b"zero", b"1", b"22"] and reader.metadata.length == 7
    assert headers_of(ledgers, reader.metadata, writer.ledger_id, 2)[0] == (writer.ledger_id, 2, 1, 7)
    assert ledgers.bookies.stored("b4", writer.ledger_id) == [2]


async def test_the_first_entry_of_a_ledger_can_be_made(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    reader = await recovered(ledgers, writer.ledger_id, {0: b"first"})
    assert await payloads_of(reader) == [b"first"] and reader.metadata.length == 5


async def test_what_lies_below_the_lac_is_left_alone(ledgers: Ledgers) -> None:
    writer = await written(ledgers, b"0", b"1", b"2", b"3")
    ledgers.bookies.seen.clear()
    reader = await recovered(ledgers, writer.ledger_id, {1: b"1", 2: b"2"})
    assert await payloads_of(reader) == [b"0", b"1", b"2", b"3"]
    assert {one.entry_id for one in ledgers.bookies.seen if one.kind == "add"} == {3}


@pytest.mark.parametrize("count", [1, 2, 3, 4, 8])
async def test_they_are_made_through_the_smallest_window(ledgers: Ledgers, writer: LedgerWriter, count: int) -> None:
    """Questions go no further than what is written and the window: what is carried must be written before any answer."""
    put(ledgers, "b1", writer.ledger_id, 20, b"beyond", lac=1, length=99)
    client = await ledgers.other_client(replace(QUICK, reads_in_flight=1))
    reader = await client.open(writer.ledger_id, recover=True, carried=dict.fromkeys(range(2, 2 + count), b"x"))
    assert (reader.last_entry, reader.metadata.length) == (1 + count, 2 + count)


async def test_nobody_is_asked_for_what_is_carried(ledgers: Ledgers, writer: LedgerWriter) -> None:
    ledgers.bookies.seen.clear()
    await recovered(ledgers, writer.ledger_id, {2: b"2", 3: b"3"})
    assert {one.entry_id for one in ledgers.bookies.seen if one.kind == "read" and one.fence} == {-1, 1, 4}


# -- who has which entry


@pytest.mark.parametrize("away", [None, 0, 1, 2])
@pytest.mark.parametrize("held", list(product((HAS, LACKS), repeat=3)), ids="-".join)
@pytest.mark.parametrize("plain", [LACKS, HAS], ids=["nothing behind", "an entry behind that one bookie has"])
async def test_it_ends_where_it_must_whoever_has_the_carried_entry(
    ledgers: Ledgers, writer: LedgerWriter, held: tuple[str, ...], away: int | None, plain: str
) -> None:
    """Entries 0 and 1 are acknowledged, 2 is carried; 3 was on its way."""
    ledger_id = writer.ledger_id
    for name, state in zip(NAMES, held, strict=True):
        if state == HAS:
            put(ledgers, name, ledger_id, 2, b"carried", lac=1, length=9)
    if plain == HAS:
        put(ledgers, "b2", ledger_id, 3, b"3", lac=1, length=10)
    if away is not None:
        ledgers.bookies.crash(NAMES[away])
    reader = await recovered(ledgers, ledger_id, {2: b"carried"}, floor=3)
    behind = [b"3"] if plain == HAS and away != 1 else []
    assert await payloads_of(reader) == [b"0", b"1", b"carried", *behind]
    assert reader.metadata.length == 9 + len(behind)
    for entry_id in range(1, reader.last_entry + 1):
        assert len(headers_of(ledgers, reader.metadata, ledger_id, entry_id)) >= 2
    if away is not None:
        ledgers.bookies.restart(NAMES[away])
    again = await recovered(ledgers, ledger_id, {2: b"carried"}, floor=3)
    assert (again.last_entry, again.metadata.length) == (reader.last_entry, reader.metadata.length)


async def test_damaged_copies_of_it_do_not_matter(ledgers: Ledgers, writer: LedgerWriter) -> None:
    for name in NAMES:
        put(ledgers, name, writer.ledger_id, 2, b"carried", lac=0, length=9)
        ledgers.bookies.damage(name, writer.ledger_id, 2)
    with pytest.raises(RecoveryFailed):
        await recovered(ledgers, writer.ledger_id, {}, floor=3)
    reader = await recovered(ledgers, writer.ledger_id, {2: b"carried"}, floor=3)
    assert await payloads_of(reader) == [b"0", b"1", b"carried"]


async def test_without_its_payload_recovery_closes_nothing_and_with_it_then_does(ledgers: Ledgers) -> None:
    writer = await written(ledgers, b"0", b"1")
    with pytest.raises(LedgerDataMissing) as caught:
        await recovered(ledgers, writer.ledger_id, {}, floor=3)
    assert (caught.value.expected, caught.value.found) == (3, 2)
    assert (await ledgers.metadata(writer.ledger_id)).state is LedgerState.IN_RECOVERY
    reader = await recovered(ledgers, writer.ledger_id, {2: b"carried"}, floor=3)
    assert await payloads_of(reader) == [b"0", b"1", b"carried"]


@pytest.mark.parametrize("floor", [0, 4], ids=["by itself", "with a floor"])
async def test_beyond_a_missing_entry_it_is_evidence_of_loss_and_closes_nothing(ledgers: Ledgers, floor: int) -> None:
    writer = await written(ledgers, b"0", b"1")
    with pytest.raises(LedgerDataMissing) as caught:
        await recovered(ledgers, writer.ledger_id, {3: b"carried"}, floor=floor)
    assert (caught.value.expected, caught.value.found) == (4, 2)
    assert (await ledgers.metadata(writer.ledger_id)).state is LedgerState.IN_RECOVERY
    reader = await recovered(ledgers, writer.ledger_id, {2: b"found", 3: b"carried"}, floor=floor)
    assert await payloads_of(reader) == [b"0", b"1", b"found", b"carried"]


async def test_beyond_an_entry_that_one_bookie_may_have_it_waits_for_that_bookie(ledgers: Ledgers) -> None:
    writer = await written(ledgers, b"0", b"1")
    put(ledgers, "b3", writer.ledger_id, 2, b"plain 2", lac=0, length=9)
    ledgers.bookies.crash("b3")
    with pytest.raises(RecoveryFailed, match="b3"):
        await recovered(ledgers, writer.ledger_id, {3: b"carried"})
    ledgers.bookies.restart("b3")
    reader = await recovered(ledgers, writer.ledger_id, {3: b"carried"})
    assert await payloads_of(reader) == [b"0", b"1", b"plain 2", b"carried"]
    assert reader.metadata.length == 16


async def test_a_ledger_that_is_closed_below_it_stays_so_and_the_error_says_it(ledgers: Ledgers) -> None:
    writer = await written(ledgers, b"0", b"1")
    await writer.close()
    before = await ledgers.metadata(writer.ledger_id)
    with pytest.raises(LedgerDataMissing):
        await recovered(ledgers, writer.ledger_id, {2: b"carried"})
    assert await ledgers.metadata(writer.ledger_id) == before
    reader = await ledgers.client.open(writer.ledger_id, recover=False, carried={2: b"carried"})
    assert reader.last_entry == 1, "a reader gets what there is"


async def test_what_is_made_needs_an_ack_quorum_too(ledgers: Ledgers, writer: LedgerWriter) -> None:
    held = [ledgers.bookies.hold(bookie=name, kind="add", recovery=True) for name in ("b1", "b2")]
    client = await ledgers.other_client(replace(QUICK, answer_timeout_s=0.25))
    with pytest.raises(NotEnoughBookies):
        await client.open(writer.ledger_id, recover=True, carried={2: b"carried"})
    assert (await ledgers.metadata(writer.ledger_id)).state is LedgerState.IN_RECOVERY
    for one in held:
        one.release()
    reader = await recovered(ledgers, writer.ledger_id, {2: b"carried"})
    assert await payloads_of(reader) == [b"0", b"1", b"carried"]


async def test_a_bookie_lost_while_it_is_made_is_replaced(ledgers: Ledgers, writer: LedgerWriter) -> None:
    ledgers.bookies.register("b1", "b3", "b4")
    held = ledgers.bookies.hold(kind="add", entry_id=2, recovery=True, answer=True)
    opening = await begun(recovered(ledgers, writer.ledger_id, {2: b"carried"}))
    ledgers.bookies.crash("b2")
    await turns()
    held.release()
    reader = await opening
    assert reader.metadata.ensembles == ((0, ("b1", "b2", "b3")), (2, ("b1", "b4", "b3")))
    assert await payloads_of(reader) == [b"0", b"1", b"carried"]


async def test_in_a_striped_ledger_it_is_made_where_it_belongs(ledgers: Ledgers) -> None:
    ledgers.bookies.register("b1", "b2", "b3", "b4")
    writer = await ledgers.striped(4, 2, 2)
    for number in range(3):
        await writer.append(b"%d" % number)
    reader = await recovered(ledgers, writer.ledger_id, {3: b"3", 4: b"4"})
    assert await payloads_of(reader) == [b"%d" % number for number in range(5)]
    assert [ledgers.copies(writer.ledger_id, reader.metadata, one) for one in (3, 4)] == [["b4", "b1"], ["b1", "b2"]]
    assert ledgers.bookies.stored("b3", writer.ledger_id) == [1, 2]


# -- several at once, and a writer that lives


@pytest.mark.parametrize("first", range(4))
async def test_recoverers_that_know_more_or_less_agree_or_close_nothing(ledgers: Ledgers, first: int) -> None:
    """Two have the payloads, two only know that there are such entries; each one begins first once."""
    writer = await written(ledgers, b"0", b"1")
    carried = {2: b"two", 3: b"three"}
    known = [carried, {}, carried, {}]
    runs = [recovered(ledgers, writer.ledger_id, one, floor=4) for one in known[first:] + known[:first]]
    found = await asyncio.gather(*runs, return_exceptions=True)
    readers = [one for one in found if isinstance(one, LedgerReader)]
    assert len(readers) >= 2
    assert all(isinstance(one, (LedgerReader, LedgerDataMissing)) for one in found)
    for reader in readers:
        assert await payloads_of(reader) == [b"0", b"1", b"two", b"three"] and reader.metadata.length == 10
    assert await payloads_of(await recovered(ledgers, writer.ledger_id, {}, floor=4)) == [b"0", b"1", b"two", b"three"]


async def test_a_second_recovery_may_run_whole_while_the_first_makes_its_entries(ledgers: Ledgers) -> None:
    writer = await written(ledgers, b"0", b"1")
    held = ledgers.bookies.hold(kind="add", recovery=True, answer=True)
    slow = await begun(recovered(ledgers, writer.ledger_id, {2: b"carried"}))
    held.active = False
    quick = await recovered(ledgers, writer.ledger_id, {2: b"carried"})
    held.release()
    for reader in (quick, await slow):
        assert await payloads_of(reader) == [b"0", b"1", b"carried"] and reader.metadata.length == 9


@pytest.mark.parametrize("arrives", [(), ("b1",), ("b2", "b3"), NAMES])
async def test_a_writer_that_adds_it_meanwhile_changes_nothing(ledgers: Ledgers, arrives: tuple[str, ...]) -> None:
    """Its adds of the carried entry and of one more reach some bookies before the fence, and the others behind it."""
    writer = await written(ledgers, b"0", b"1")
    listener = RecordedAcks(writer)
    late = ledgers.bookies.hold(kind="add", recovery=False)
    await submit(writer, b"carried", b"not cut")
    now: list[Callable[[], None]] = []
    later: list[Callable[[], None]] = []
    for message, travel in late.kept:
        (now if message.bookie in arrives else later).append(travel)
    late.discard()
    late.active = False
    for travel in now:
        travel()
    acks = ledgers.bookies.hold(kind="add", recovery=False, answer=True)
    reader = await recovered(ledgers, writer.ledger_id, {2: b"carried"}, floor=3)
    for travel in later:
        travel()
    await turns()
    await deliver(acks)
    if later:
        assert isinstance(writer.failed, LedgerFenced)
    if "b2" not in arrives:
        with pytest.raises(LedgerFenced):
            await writer.acknowledged(2)
    assert max(listener.acked, default=1) <= reader.last_entry
    expected = [b"0", b"1", b"carried", b"not cut"][: reader.last_entry + 1]
    assert reader.last_entry >= 2 and await payloads_of(reader) == expected
    assert reader.metadata.length == sum(map(len, expected))
    for name in NAMES:
        assert ledgers.bookies[name].entries[writer.ledger_id][2].endswith(b"carried")
