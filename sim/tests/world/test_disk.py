"""Disk latencies and faults that follow from a seed."""

from __future__ import annotations

from typing import Any

import pytest

from boki_common.errors import DiskFailed
from boki_common.runtime.memory_disk import MemoryDisk
from boki_sim.world.disk import DiskPlan, flip_bits, misdirect
from boki_sim.world.randomness import stream


def make_plan(simulation: Any) -> DiskPlan:
    numbers = stream(1, "disk")
    return DiskPlan(
        simulation.loop, simulation.process("bookie"), numbers, simulation.trace, flush_s=0.01, other_s=0.001
    )


def test_flushes_take_longer_and_a_slow_disk_longer_still(simulation: Any) -> None:
    plan = make_plan(simulation)
    flushes = sum(plan("sync", "f") for _ in range(500))
    reads = sum(plan("read", "f") for _ in range(500))
    plan.slowness = 100
    slow = sum(plan("sync", "f") for _ in range(500))
    assert 4 < flushes < 6
    assert reads < flushes / 5
    assert slow > 50 * flushes
    assert plan.operations == 1_500


def test_operations_fail_as_often_as_configured(simulation: Any) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        disk.plan = plan = make_plan(simulation)
        file = await disk.open("f", create=True)
        plan.failing["sync"] = 1
        await file.write(0, [b"x"], durable=False)
        with pytest.raises(DiskFailed, match="input/output"):
            await file.sync()
        await file.sync()

    simulation.run(scenario())


def test_bits_are_flipped_where_it_says() -> None:
    disk = MemoryDisk()
    disk.put("small", bytes(4))
    disk.put("large", bytes(4_000))
    places = flip_bits(disk, stream(1, "flips"), count=20)
    assert len(places) == 20
    assert any(place.startswith("small") for place in places), "every file is as likely, small ones too"
    flipped = sum(byte.bit_count() for name in ("small", "large") for byte in disk.contents(name))
    assert 0 < flipped <= 20
    assert flip_bits(MemoryDisk(), stream(1, "flips"), count=3) == []


def test_a_misdirected_write_replaces_another_sector() -> None:
    disk = MemoryDisk()
    disk.put("f", b"a" * 512 + b"b" * 512 + b"c" * 100)
    outcomes = set()
    for seed in range(40):
        other = disk.reopen()
        other.put("f", b"a" * 512 + b"b" * 512 + b"c" * 100)
        (place,) = misdirect(other, stream(seed, "m"))
        assert " on f:" in place
        assert len(other.contents("f")) == 1_124
        outcomes.add(other.contents("f"))
    assert len(outcomes) > 3
    assert misdirect(MemoryDisk(), stream(1, "m")) == []
