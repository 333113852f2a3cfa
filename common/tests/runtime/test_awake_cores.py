"""The wish of the kernel that cores do not sleep: made, held and ended; refused with a reason; as the setting says."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from boki_common.errors import SettingsError
from boki_common.runtime import awake_cores as module
from boki_common.runtime.awake_cores import (
    ANY_SLEEP,
    LATENCY_DEVICE,
    NO_SLEEP,
    When,
    awake_cores,
    kept_awake,
    may_keep_awake,
)


def holds(path: Path) -> bool:
    """Whether this process has it open."""
    return any(link.exists() and link.resolve() == path for link in Path("/proc/self/fd").iterdir())


def test_the_device_is_held_open_with_a_wish_for_no_latency_until_the_end(tmp_path: Path) -> None:
    device = tmp_path / "latency"
    device.touch()
    with awake_cores(device):
        assert device.read_bytes() == bytes(4), "a 32-bit number of µs"
        assert holds(device)
    assert not holds(device)


def test_the_wish_ends_with_an_error(tmp_path: Path) -> None:
    device = tmp_path / "latency"
    device.touch()
    with pytest.raises(ZeroDivisionError), awake_cores(device):
        raise ZeroDivisionError
    assert not holds(device)


def test_without_the_device_or_the_right_to_it_nothing_starts(tmp_path: Path) -> None:
    device = tmp_path / "latency"
    match = r"cannot keep the cores awake.*run as root.*set keep_cores_awake to busy or never"
    with pytest.raises(SettingsError, match=match), awake_cores(device):
        raise AssertionError("there is none")
    assert not device.exists()
    assert not may_keep_awake(device)


@pytest.mark.skipif(not may_keep_awake(), reason=f"{LATENCY_DEVICE} is absent or not ours to write to")
def test_the_kernel_takes_the_wish() -> None:
    with awake_cores():
        assert holds(LATENCY_DEVICE)


async def test_a_busy_process_keeps_cores_awake_and_a_quiet_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path / "latency"
    os.mkfifo(device)
    wishes = os.open(device, os.O_RDWR)
    used_s = 0.0
    load = 1.0

    def used() -> float:
        nonlocal used_s
        used_s += load
        return used_s

    async def next_wish() -> bytes:
        return await asyncio.wait_for(asyncio.to_thread(os.read, wishes, 4), 10)

    monkeypatch.setattr(module, "_used_s", used)
    async with kept_awake("busy", device):
        assert await next_wish() == NO_SLEEP
        load = 0.0
        assert await next_wish() == ANY_SLEEP
        load = 1.0
        assert await next_wish() == NO_SLEEP
    os.close(wishes)
    assert not holds(device)


@pytest.mark.parametrize("when", ["busy", "never"])
async def test_without_the_right_a_role_starts_unless_cores_are_always_to_be_awake(tmp_path: Path, when: When) -> None:
    device = tmp_path / "latency"
    async with kept_awake(when, device):
        pass
    assert not device.exists()
    with pytest.raises(SettingsError, match="cannot keep the cores awake"):
        async with kept_awake("always", device):
            raise AssertionError("there is none")


async def test_the_wish_for_always_is_made_at_once_and_held(tmp_path: Path) -> None:
    device = tmp_path / "latency"
    device.touch()
    async with kept_awake("always", device):
        assert device.read_bytes() == NO_SLEEP
        assert holds(device)
    assert not holds(device)
