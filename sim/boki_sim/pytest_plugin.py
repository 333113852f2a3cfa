"""`pytest --sim-seed N`: simulated tests run that seed alone. Found by pytest through the entry point `pytest11`.

It imports nothing of Boki, so it costs nothing in test suites that use no simulation.
"""

from __future__ import annotations

from typing import Any, Final

_seeds: Final[list[int]] = []


def pytest_addoption(parser: Any) -> None:
    """Adds the option."""
    group = parser.getgroup("boki")
    group.addoption("--sim-seed", type=int, metavar="N", help="run simulated tests with this seed alone")


def pytest_configure(config: Any) -> None:
    """Keeps what the option says."""
    seed = config.getoption("--sim-seed")
    _seeds[:] = [] if seed is None else [seed]


def chosen() -> int | None:
    """The seed that the command line names; None: each test has its own."""
    return _seeds[0] if _seeds else None
