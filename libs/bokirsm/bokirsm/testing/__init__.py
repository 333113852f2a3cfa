"""Tests of machines without a server: a tester chooses each schedule, timer, random choice and crash, and finds those that go wrong.

    class NoMoneyLost(Monitor):
        def ended(self) -> None:
            assert sum(one.balance for one in self.machines(Account)) == 200

    @rsm_test(BANK, monitors=[NoMoneyLost], seconds=10)
    async def test_transfers(rsm: TestRsm) -> None:
        ...                                         # creates machines, sends and asks, as with `bokirsm.Rsm`

The code under test is unchanged, and runs on the core that hosts run it on. A fault comes with the story of a run that leads to it, made
small, and with a witness that replays it.

Read `errors` and `strategies`, `monitors`, `mocks` and `clients` (what a test declares), `run` (one run, with `choices`, `hashing`, `leaks`
and `story`), `witness`, `shrink` and `tester`, then `decorator`.
"""

from bokirsm.testing.clients import Main, TestRsm
from bokirsm.testing.decorator import RsmTest, rsm_test
from bokirsm.testing.errors import BugFound, Diverged, Fault
from bokirsm.testing.mocks import Answer, Mock
from bokirsm.testing.monitors import Monitor, SeenMachine
from bokirsm.testing.run import Program, Reached, Run
from bokirsm.testing.shrink import shrunk
from bokirsm.testing.strategies import Delays, Exhaustive, Priorities, Sticky, Strategy, Uniform, portfolio
from bokirsm.testing.tester import Limits, Report, run_tests
from bokirsm.testing.witness import Witness, parse_witness, replay

__all__ = [
    "Answer",
    "BugFound",
    "Delays",
    "Diverged",
    "Exhaustive",
    "Fault",
    "Limits",
    "Main",
    "Mock",
    "Monitor",
    "Priorities",
    "Program",
    "Reached",
    "Report",
    "RsmTest",
    "Run",
    "SeenMachine",
    "Sticky",
    "Strategy",
    "TestRsm",
    "Uniform",
    "Witness",
    "parse_witness",
    "portfolio",
    "replay",
    "rsm_test",
    "run_tests",
    "shrunk",
]
