"""`pytest --sim-seed N`: simulated tests run that seed alone. Found by pytest through the entry point `pytest11`.

A test of a program of yours is a coroutine function that takes `cluster`, under `boki.testing.simulated` (a real cluster) or
`boki.testing.virtual_time` (a model of one); other parameters are fixtures, as ever. It needs no plugin for asyncio:

    from boki.testing import simulated
    from my_program import main                # async def main(env): ... await env.connect() ...

    @simulated(seeds=200, faults="harsh")
    async def test_my_program(cluster):
        host = cluster.host("my-program", main)        # killed and begun again, until it returns
        assert await host.result() == "done"

    pytest test_my_program.py                  # all seeds; the first that fails is named, and shrunk
    pytest test_my_program.py --sim-seed 17    # that one again

It imports nothing of Boki, so it costs nothing in test suites that use no simulation.
"""

from __future__ import annotations

from typing import Any, Final

_seeds: Final[list[int]] = []


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("boki")
    group.addoption("--sim-seed", type=int, metavar="N", help="run simulated tests with this seed alone")


def pytest_configure(config: Any) -> None:
    seed = config.getoption("--sim-seed")
    _seeds[:] = [] if seed is None else [seed]


def chosen() -> int | None:
    """The seed that the command line names; None: each test has its own."""
    return _seeds[0] if _seeds else None
