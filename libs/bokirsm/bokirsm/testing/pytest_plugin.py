"""`pytest --rsm-seed N` and `--rsm-replay FILE`, for tests under `rsm_test`. Found by pytest through its entry point.

    pytest test_bank.py                         # a fault names the file of its witness
    pytest test_bank.py --rsm-replay=FILE       # that run again, alone
    pytest test_bank.py --rsm-seed=17           # the run of that seed, alone

It imports no other module of Boki, so it costs nothing in test suites that test no machines.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

_chosen: Final[dict[str, Any]] = {}


def pytest_addoption(parser: Any) -> None:
    """Add the options."""
    group = parser.getgroup("boki")
    group.addoption("--rsm-seed", type=int, metavar="N", help="run tests of machines with the run of this seed alone")
    group.addoption("--rsm-replay", metavar="FILE", help="run tests of machines with the run of this witness alone")


def pytest_configure(config: Any) -> None:
    """Keep what the command line says."""
    _chosen.clear()
    _chosen["seed"] = config.getoption("--rsm-seed")
    replays = config.getoption("--rsm-replay")
    _chosen["witness"] = Path(replays).read_bytes() if replays else None
    _chosen["cache"] = getattr(config, "cache", None)


def chosen_seed() -> int | None:
    """Return the seed of the command line; None if it has none."""
    seed: int | None = _chosen.get("seed")
    return seed


def chosen_witness() -> bytes | None:
    """Return the witness that the command line names; None if it names none."""
    witness: bytes | None = _chosen.get("witness")
    return witness


def write_witness(test: str, data: bytes) -> str | None:
    """Write the witness of a test to the cache of pytest, or without one to a new directory. Return its path; None without pytest."""
    if not _chosen:
        return None
    cache = _chosen["cache"]
    directory = Path(str(cache.mkdir("rsm"))) if cache is not None else Path(tempfile.mkdtemp(prefix="rsm-"))
    path = directory / f"{test.replace(':', '.')}.json"
    path.write_bytes(data)
    return str(path)
