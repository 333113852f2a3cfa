"""Cores that do not sleep: a request to the kernel, so that single requests are answered fast.

A core without work sleeps, and waking it costs both who wakes and who is woken: tens of µs on a virtual machine, where a
sleeping core goes back to the host. One append wakes some sixteen, one after another. Linux keeps all cores awake, waiting
in a loop, as long as a process holds its device for wake-up latencies open with the wish for 0 µs; the wish ends with the
process, however it ends.

`kept_awake` does it as the setting says: always, never, or while this process is busy (`busy_cores` decides). The device is
written to in a thread: the kernel wakes all cores meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Final, Literal

from boki_common.background_tasks import ended
from boki_common.errors import SettingsError
from boki_common.runtime.busy_cores import BusyCores

When = Literal["busy", "always", "never"]

LATENCY_DEVICE: Final = Path("/dev/cpu_dma_latency")
"""Linux's quality of service for power management: 4 bytes, the µs that waking may take."""
LOOK_S: Final = 0.25
"""How often it is looked at whether this process is busy."""
NO_SLEEP: Final = bytes(4)
ANY_SLEEP: Final = (2_000_000_000).to_bytes(4, sys.byteorder)
"""The kernel's own default: this value changes nothing."""


def may_keep_awake(device: Path = LATENCY_DEVICE) -> bool:
    """Whether `awake_cores` would be granted."""
    return os.access(device, os.R_OK | os.W_OK)


@contextmanager
def awake_cores(device: Path = LATENCY_DEVICE) -> Iterator[None]:
    """Keeps all cores of this machine from sleeping while it is open. Raises SettingsError: this system does not have the
    device, or we may not write to it."""
    with _opened(device) as wish:
        wish.write(NO_SLEEP)
        yield


@asynccontextmanager
async def kept_awake(when: When, device: Path = LATENCY_DEVICE) -> AsyncIterator[None]:
    """Keeps the cores awake while it is open: `always`, `never`, or while this process is `busy` and may do so. Raises
    SettingsError: always, and the wish is not granted."""
    async with AsyncExitStack() as stack:
        if when == "always":
            wish = stack.enter_context(await asyncio.to_thread(_opened, device))
            await asyncio.to_thread(wish.write, NO_SLEEP)
        elif when == "busy":
            with suppress(SettingsError):
                wish = stack.enter_context(await asyncio.to_thread(_opened, device))
                watch = asyncio.create_task(_awake_while_busy(wish), name="awake-cores")
                stack.push_async_callback(ended, watch)
        yield


async def _awake_while_busy(wish: FileIO) -> None:
    loop = asyncio.get_running_loop()
    busy = BusyCores(loop.time(), _used_s())
    awake = False
    while True:
        await asyncio.sleep(LOOK_S)
        wanted = busy.look(loop.time(), _used_s())
        if wanted is not awake:
            await asyncio.to_thread(wish.write, NO_SLEEP if wanted else ANY_SLEEP)
            awake = wanted


def _opened(device: Path) -> FileIO:
    try:
        return device.open("r+b", buffering=0)  # which makes no file where there is no device
    except OSError as error:
        raise SettingsError(
            f"cannot keep the cores awake: {error.strerror} ({device}); expected Linux and the right to write there: run as "
            "root, give the service that right, or set keep_cores_awake to busy or never",
            path=str(device),
        ) from error


def _used_s() -> float:
    """Processor time of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
