"""A scrub finds copies that were never made, damaged ones and ones that differ; only what is certain is mended."""

from __future__ import annotations

import pytest
from tests.repair.conftest import closed_on, lose, register

from boki_common.bookkeeper import v2
from boki_common.bookkeeper.digests import digest_for
from boki_common.errors import NoSuchLedger
from boki_common.ids import BookieId
from boki_ledger.repair.settings import Mode, RepairLimits
from boki_ledger.testing.ledgers import Ledgers

pytestmark = pytest.mark.usefixtures("virtual_time")


@pytest.fixture
async def ledger_id(ledgers: Ledgers) -> int:
    """Closed, on b1, b2 and b3: b3 never got entries 1 and 2."""
    found = await closed_on(ledgers, "b1", "b2", "b3")
    await register(ledgers, "b1", "b2", "b3", "b4", "b5")
    for entry_id in (1, 2):
        del ledgers.bookies["b3"].entries[found][entry_id]
    return found


def stored(ledgers: Ledgers, bookie: str, ledger_id: int) -> list[int]:
    return ledgers.bookies.stored(bookie, ledger_id)


async def test_what_is_missing_is_told_and_made_only_where_that_is_asked(ledgers: Ledgers, ledger_id: int) -> None:
    found = await ledgers.client.scrubber().scrub(ledger_id)
    assert (found.copies, found.missing, found.copied, found.is_whole) == (7, 2, 0, False)
    assert stored(ledgers, "b3", ledger_id) == [0]
    found = await ledgers.client.scrubber(mend=True).scrub(ledger_id)
    assert (found.copies, found.missing, found.copied, found.is_whole) == (9, 2, 2, True)
    assert stored(ledgers, "b3", ledger_id) == [0, 1, 2]
    assert not [one for one in ledgers.bookies.seen if one.kind == "hold"], "its place is named already"


async def test_controllers_find_it_in_time_and_never_twice(ledgers: Ledgers, ledger_id: int) -> None:
    auditor = ledgers.client.auditor(RepairLimits(bytes_per_s=0))
    await auditor.round(Mode.OBSERVE)
    assert stored(ledgers, "b3", ledger_id) == [0]
    await auditor.round(Mode.OURS)
    assert stored(ledgers, "b3", ledger_id) == [0, 1, 2]
    status = auditor.status()
    assert (status["scrubbed_ledgers"], status["unscrubbed_ledgers"], status["never_made_copies"]) == (1, 0, 2)
    ledgers.bookies.seen.clear()
    await auditor.round(Mode.OURS)
    assert not [one for one in ledgers.bookies.seen if one.kind == "list"]


async def test_a_bookie_that_is_away_is_told_and_the_others_are_looked_at(ledgers: Ledgers, ledger_id: int) -> None:
    await lose(ledgers, "b2")
    found = await ledgers.client.scrubber(mend=True).scrub(ledger_id)
    assert list(found.unanswered) == ["b2"]
    assert (found.copied, found.is_whole) == (2, False)


async def test_what_nobody_has_is_told(ledgers: Ledgers, ledger_id: int) -> None:
    for bookie in ("b1", "b2"):
        del ledgers.bookies[bookie].entries[ledger_id][2]
    found = await ledgers.client.scrubber(mend=True).scrub(ledger_id)
    assert (found.missing, found.copied, found.lost) == (4, 1, 3)


async def test_a_damaged_copy_is_found_by_its_digest_alone(ledgers: Ledgers, ledger_id: int) -> None:
    ledgers.bookies.damage("b1", ledger_id, 0)
    assert not (await ledgers.client.scrubber().scrub(ledger_id)).damaged.total
    found = await ledgers.client.scrubber().scrub(ledger_id, digests=True)
    assert (found.damaged.total, found.damaged.named, found.replaced) == (1, [(0, "b1")], 0)
    found = await ledgers.client.scrubber(mend=True).scrub(ledger_id, digests=True)
    assert (found.damaged.total, found.replaced, found.is_whole) == (1, 1, True)
    assert (await ledgers.client.scrubber().scrub(ledger_id, digests=True)).is_whole


async def test_sound_copies_that_differ_are_never_resolved(ledgers: Ledgers, ledger_id: int) -> None:
    """Nothing says which of them was acknowledged."""
    metadata = await ledgers.metadata(ledger_id)
    header = v2.EntryHeader(ledger_id, 1, 0, 10)
    other = b"".join(v2.encode_body(header, digest_for(metadata.digest_type, b""), (b"other",)))
    ledgers.bookies["b2"].entries[ledger_id][1] = other
    before = {bookie: dict(ledgers.bookies[bookie].entries[ledger_id]) for bookie in ("b1", "b2")}
    found = await ledgers.client.scrubber(mend=True).scrub(ledger_id, digests=True)
    assert (found.diverged.total, found.diverged.named[0][0], found.is_whole) == (1, 1, False)
    assert {bookie: ledgers.bookies[bookie].entries[ledger_id] for bookie in ("b1", "b2")} == before
    assert stored(ledgers, "b3", ledger_id) == [0, 2], "a third copy would be a choice"


async def test_another_lac_in_the_header_is_the_same_entry(ledgers: Ledgers, ledger_id: int) -> None:
    """Apache's repair writes the end of the ledger there."""
    metadata = await ledgers.metadata(ledger_id)
    body = memoryview(ledgers.bookies["b1"].entries[ledger_id][0])
    length = int.from_bytes(body[24:32], "big")
    header = v2.EntryHeader(ledger_id, 0, 2, length)
    digest = digest_for(metadata.digest_type, b"")
    same = b"".join(v2.encode_body(header, digest, (body[32 + digest.size :],)))
    assert same != bytes(body)
    ledgers.bookies["b2"].entries[ledger_id][0] = same
    assert not (await ledgers.client.scrubber().scrub(ledger_id, digests=True)).diverged.total


async def test_those_that_drain_are_not_asked(ledgers: Ledgers, ledger_id: int) -> None:
    found = await ledgers.client.scrubber(mend=True).scrub(ledger_id, digests=True, without=[BookieId("b3")])
    assert (found.copies, found.missing, found.is_whole) == (6, 0, True)


async def test_one_that_is_deleted_is_none(ledgers: Ledgers, ledger_id: int) -> None:
    await ledgers.client.delete(ledger_id)
    with pytest.raises(NoSuchLedger):
        await ledgers.client.scrubber().scrub(ledger_id)
