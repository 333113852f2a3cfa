"""Which machine a run was made on, and how much processor time processes used."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

import psutil


def facts(directory: Path) -> dict[str, object]:
    """What a reader must know before comparing two runs."""
    model = "unknown"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    mounts = sorted(psutil.disk_partitions(all=True), key=lambda one: len(one.mountpoint))
    below = [one for one in mounts if directory.resolve().is_relative_to(one.mountpoint)]
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
        "python": sys.version.split()[0],
        "uvloop": _version("uvloop"),
        "numpy": _version("numpy"),
        "boki": _version("boki"),
        "file_system": below[-1].fstype if below else "unknown",
        "load_before": round(os.getloadavg()[0], 2),
    }


def shown(facts: Mapping[str, object]) -> dict[str, str]:
    """The same in two lines of a table."""
    return {
        "machine": f"{facts['processor']}, {facts['cores']} cores, {facts['system']}, {facts['file_system']}",
        "software": f"Python {facts['python']}, uvloop {facts['uvloop']}, load before {facts['load_before']}",
    }


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of processes so far, all their threads included."""
    total = 0.0
    for pid in pids:
        times = psutil.Process(pid).cpu_times()
        total += times.user + times.system
    return total


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"
