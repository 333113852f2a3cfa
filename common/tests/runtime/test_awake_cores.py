"""The wish of the kernel that cores do not sleep: made, held and ended; refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from boki_common.errors import SettingsError
from boki_common.runtime.awake_cores import LATENCY_DEVICE, awake_cores, may_keep_awake


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
    match = r"cannot keep the cores awake.*run as root.*keep_cores_awake off"
    with pytest.raises(SettingsError, match=match), awake_cores(device):
        raise AssertionError("there is none")
    assert not device.exists()
    assert not may_keep_awake(device)


@pytest.mark.skipif(not may_keep_awake(), reason=f"{LATENCY_DEVICE} is absent or not ours to write to")
def test_the_kernel_takes_the_wish() -> None:
    with awake_cores():
        assert holds(LATENCY_DEVICE)
