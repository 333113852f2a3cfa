"""Cores that do not sleep: a request to the kernel, for whoever wants single requests answered fast.

A core without work sleeps, and waking it costs both who wakes and who is woken: tens of µs on a virtual machine, where a
sleeping core goes back to the host. One append wakes some sixteen, one after another. Linux keeps all cores awake, waiting
in a loop, as long as a process holds its device for wake-up latencies open with the wish for 0 µs; the wish ends with the
process, however it ends.

It costs power, and on a shared host the time of its cores: so it is asked for, never assumed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from boki_common.errors import SettingsError

LATENCY_DEVICE: Final = Path("/dev/cpu_dma_latency")
"""Linux's quality of service for power management: 4 bytes, the µs that waking may take."""
_NO_SLEEP: Final = bytes(4)


def may_keep_awake(device: Path = LATENCY_DEVICE) -> bool:
    """Whether `awake_cores` would be granted."""
    return os.access(device, os.R_OK | os.W_OK)


@contextmanager
def awake_cores(device: Path = LATENCY_DEVICE) -> Iterator[None]:
    """Keeps all cores of this machine from sleeping while it is open.

    Raises:
        SettingsError: this system does not have the device, or we may not write to it.
    """
    try:
        held = device.open("r+b", buffering=0)  # which makes no file where there is no device
    except OSError as error:
        raise SettingsError(
            f"cannot keep the cores awake: {error.strerror} ({device}); expected Linux and the right to write there: run as "
            "root, give the service that right, or leave keep_cores_awake off",
            path=str(device),
        ) from error
    with held:
        held.write(_NO_SLEEP)
        yield
