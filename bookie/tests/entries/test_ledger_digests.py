"""Digests of adds: learned from the metadata, once, and what does not match is never stored."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.turns import turns

from boki_bookie.entries.ledger_digests import LedgerDigests, matcher_of
from boki_bookie.entries.validation import LedgerValidation
from boki_bookie.storage import storage as storage_module
from boki_bookie.storage.storage import Storage
from boki_common import limits
from boki_common.bookkeeper import v2
from boki_common.bookkeeper.ledger_metadata import NO_DIGEST, LedgerMetadata
from boki_common.bookkeeper.status import V2Status
from boki_common.bookkeeper.v2 import AddRequest
from boki_common.ids import BookieId
from boki_common.metrics import Metrics
from boki_common.runtime.memory_disk import MemoryDisk

METADATA = LedgerMetadata(ensemble_size=1, write_quorum=1, ack_quorum=1, ensembles=((0, (BookieId("me"),)),))


def damaged(add: AddRequest, at: int = -1) -> AddRequest:
    body = bytearray(add.body)
    body[at] ^= 1
    return add._replace(body=memoryview(bytes(body)))


@pytest.mark.parametrize(
    ("kind", "checked", "refused"),
    [
        ("CRC32C", "crc", True), ("CRC32", "crc", True), ("HMAC", "crc", False), ("HMAC", "all", True),
        ("DUMMY", "all", False), (NO_DIGEST, "all", False), ("CRC32C", "none", False),
    ],
)  # fmt: skip
def test_which_digests_are_checked(world: Any, kind: str, checked: Any, refused: bool) -> None:
    matches = matcher_of(dataclasses.replace(METADATA, digest_type=kind), checked)
    add = world.add(1, 0, digest=kind or "CRC32C")
    assert matches((add.body,))
    assert matches((damaged(add).body,)) is not refused


class Checked:
    """A storage with digests and a first validation that reads the world's metadata."""

    def __init__(self, world: Any, disk: MemoryDisk) -> None:
        self.metrics = Metrics()
        self.digests = LedgerDigests(world.store, "crc", self.metrics)
        self._validate = LedgerValidation(world.store, "me", world.settings, digests=self.digests)
        self._world = world
        self._disk = disk

    async def open(self) -> Storage:
        opened = await self._world.open(self._disk, validate=self._validate, digests=self.digests)
        assert isinstance(opened, Storage)
        return opened

    @property
    def counted(self) -> bool:
        return b"boki_bookie_digest_mismatches_total 1.0" in self.metrics.render()


async def learned(world: Any) -> None:
    """Lets reads of the metadata end."""
    await turns(20)


async def test_the_first_add_of_a_new_ledger_is_checked(world: Any, disk: MemoryDisk) -> None:
    await world.ledger(7, "me")
    checked = Checked(world, disk)
    storage = await checked.open()
    assert await world.put(storage, damaged(world.add(7, 0))) == [V2Status.BAD_REQUEST]
    assert await world.read(storage, 7, 0) is V2Status.NO_ENTRY
    assert checked.counted
    assert await world.put(storage, world.add(7, 0)) == [V2Status.OK]


async def test_a_recovery_add_before_validation_lets_the_digest_be_learned(world: Any, disk: MemoryDisk) -> None:
    await world.ledger(7, "me")
    checked = Checked(world, disk)
    storage = await checked.open()
    assert await world.put(storage, world.add(7, 0, recovery=True)) == [V2Status.OK]
    await learned(world)
    assert await world.put(storage, damaged(world.add(7, 1, recovery=True))) == [V2Status.BAD_REQUEST]
    assert await world.put(storage, world.add(7, 1, recovery=True)) == [V2Status.OK]


async def test_after_a_restart_it_is_learned_again(world: Any, disk: MemoryDisk) -> None:
    await world.ledger(7, "me")
    storage = await Checked(world, disk).open()
    assert await world.put(storage, world.add(7, 0)) == [V2Status.OK]
    await storage.close()
    disk = disk.reopen()
    storage = await Checked(world, disk).open()
    assert await world.put(storage, world.add(7, 1)) == [V2Status.OK]
    await learned(world)
    assert await world.put(storage, damaged(world.add(7, 2))) == [V2Status.BAD_REQUEST]


async def test_metadata_that_is_not_there_leaves_adds_unchecked(world: Any) -> None:
    digests = LedgerDigests(world.store, "all", Metrics())
    bad = damaged(world.add(7, 0)).body
    for _ in range(3):
        assert digests.matches(7, bad)
        await learned(world)
    digests.learn(7, METADATA)
    assert not digests.matches(7, bad)
    await digests.close()


async def test_few_reads_at_once_and_few_ledgers_remembered(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BOOKIE_DIGESTS_READ", 2)
    monkeypatch.setattr(limits, "BOOKIE_LEDGERS_REMEMBERED", 3)
    for ledger_id in range(5):
        await world.ledger(ledger_id, "me")
    digests = LedgerDigests(world.store, "all", Metrics())
    bad = {ledger_id: damaged(world.add(ledger_id, 0)).body for ledger_id in range(5)}
    assert all(digests.matches(ledger_id, body) for ledger_id, body in bad.items())
    await learned(world)
    assert [digests.matches(ledger_id, bad[ledger_id]) for ledger_id in (0, 1)] == [False, False]
    assert digests.matches(2, bad[2]), "its read was not begun"
    await learned(world)
    for ledger_id in (2, 3, 4):
        digests.learn(ledger_id, METADATA)
    assert digests.matches(0, bad[0]), "forgotten, and learned again"
    await learned(world)
    assert not digests.matches(0, bad[0])
    await digests.close()


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize(("digest", "summed"), [("CRC32C", 5), ("CRC32", 0), ("DUMMY", 0)])
async def test_sums_of_large_bodies_follow_from_their_digest_and_can_be_read_with_them(
    world: Any, disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch, digest: str, summed: int, crash: bool
) -> None:
    monkeypatch.setattr(storage_module, "SUMMED_BODY_BYTES", 1_000)
    await world.ledger(7, "me")
    made = Checked(world, disk)
    storage = await made.open()
    assert await world.put(storage, world.add(7, 0)) == [V2Status.OK]
    made.digests.learn(7, dataclasses.replace(METADATA, digest_type=digest))
    bodies = [world.body(7, entry, bytes([entry]) * 1_500, digest=digest) for entry in range(1, 6)]
    run = v2.decode_add_run([memoryview(b"".join(v2.encode_add_body([body], world.key)))[4:] for body in bodies], 0)
    assert run is not None
    assert storage.add_run(run)
    ledger = storage.ledger(7)
    assert ledger is not None and len(ledger.sums) == summed
    ledger.check_invariants()
    await storage.journal.flushed()
    if crash:  # the journal has them
        storage = await Checked(world, disk.crash(world.rng)).open()
    await storage.checkpoint()
    assert [await world.read(storage, 7, entry) for entry in range(1, 6)] == bodies
    ledger = storage.ledger(7)
    assert ledger is not None and not ledger.sums and ledger.entry_count == 6


async def test_one_damaged_add_of_a_run_lets_none_of_it_in_at_once(world: Any, disk: MemoryDisk) -> None:
    """They then come one by one, and the damaged one alone is refused."""
    await world.ledger(7, "me")
    storage = await Checked(world, disk).open()
    assert await world.put(storage, world.add(7, 0)) == [V2Status.OK]
    adds = [world.add(7, entry) for entry in range(1, 6)]
    for damage, stored in ((2, False), (None, True)):
        sent = [damaged(add) if at == damage else add for at, add in enumerate(adds)]
        frames = [memoryview(b"".join(v2.encode_add_body([add.body], world.key)))[4:] for add in sent]
        run = v2.decode_add_run(frames, 0)
        assert run is not None and len(run.bodies) == 5
        assert storage.add_run(run) is stored
    await storage.journal.flushed()
    assert storage.entry_ids(7) == [0, 1, 2, 3, 4, 5]
