"""The options `pytest --rsm-seed N` and `--rsm-replay FILE` of tests under `rsm_test`. Found by pytest through its entry point.

    pytest test_bank.py                         # a fault names the file of its witness
    pytest test_bank.py --rsm-replay=FILE       # that run again, alone
    pytest test_bank.py --rsm-seed=17           # the run of that seed, alone

It imports no other module of Boki, so it costs nothing in test suites that test no machines.
"""

from __future__ import annotations

from typing import Any


def pytest_addoption(parser: Any) -> None:
    """Add the options."""
    group = parser.getgroup("boki")
    group.addoption("--rsm-seed", type=int, metavar="N", help="run tests of machines with the run of this seed alone")
    group.addoption("--rsm-replay", metavar="FILE", help="run tests of machines with the run of this witness alone")
