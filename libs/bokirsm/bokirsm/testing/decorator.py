"""`rsm_test`: makes a pytest test of a program over machines. Beside pytest, `boki rsm test` runs it.

@rsm_test(BANK, monitors=[NoMoneyLost])
async def test_transfers(rsm: TestRsm) -> None: ...      # the program itself

@rsm_test(BANK, transfers, seconds=60)
def test_much(report: Report) -> None: ...               # with a program; gets the report if no fault was found
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from boki_common.errors import InvalidArgument
from bokirsm.machine.app import App
from bokirsm.testing.clients import Main
from bokirsm.testing.errors import BugFound
from bokirsm.testing.mocks import Mock
from bokirsm.testing.monitors import Monitor
from bokirsm.testing.run import STEPS, Program
from bokirsm.testing.strategies import Strategy
from bokirsm.testing.tester import ITERATIONS, SECONDS, Limits, Report, run_tests
from bokirsm.testing.witness import Witness, parse_witness, replay, text_of


class RsmTest:
    """A test of a program over machines. Pytest calls it.

    Attributes:
        program: the subject.
        limits: of the test.
        name: the test, as `module:function`.
    """

    def __init__(
        self,
        program: Program,
        limits: Limits,
        name: str,
        seed: int,
        strategies: Callable[[], list[Strategy]] | None,
        then: Callable[[Report], None] | None,
    ) -> None:
        self.program: Final = program
        self.limits: Final = limits
        self.name: Final = name
        self.seed: Final = seed
        self._strategies: Final = strategies
        self._then: Final = then

    def run(self, config: Any = None) -> None:
        """Run the test as the options of pytest say. `config`: of pytest; None without it.

        Raises:
            BugFound: a run found a fault.
        """
        seed, replays = _option(config, "--rsm-seed"), _option(config, "--rsm-replay")
        if replays is not None:
            witness = parse_witness(Path(replays).read_bytes())
            if witness.test in ("", self.name):
                self._fail(witness, None)
            return
        limits = self.limits if seed is None else self.limits._replace(iterations=1)
        report = self.report(limits, self.seed if seed is None else seed)
        if report.witness is not None:
            self._fail(report.witness, config)
        elif self._then is not None and seed is None:
            self._then(report)

    def report(self, limits: Limits, seed: int, strategies: Sequence[Strategy] | None = None) -> Report:
        """Run the program, and return the report. Its witness names this test."""
        chosen = strategies or (self._strategies() if self._strategies is not None else None)
        found = run_tests(self.program, limits, seed=seed, strategies=chosen)
        if found.witness is None:
            return found
        return found._replace(witness=msgspec.structs.replace(found.witness, test=self.name))

    def _fail(self, witness: Witness, config: Any) -> None:
        """Raise the fault of a witness, which is written if there is a pytest."""
        found = replay(self.program, witness)
        replays = "" if config is None else f"again: pytest … --rsm-replay={_write(config, self.name, witness.json())}"
        raise BugFound(text_of(witness, found.story), replays) from (found.fault.__cause__ if found.fault else None)


def _option(config: Any, name: str) -> Any:
    """Return an option of pytest (`bokirsm_tools.pytest_plugin`); None if it is not given."""
    return None if config is None else config.getoption(name, default=None)


def _write(config: Any, test: str, data: bytes) -> str:
    """Write a witness to the cache of pytest, or to a new directory if that is off. Return its path."""
    cache = getattr(config, "cache", None)
    directory = Path(str(cache.mkdir("rsm"))) if cache is not None else Path(tempfile.mkdtemp(prefix="rsm-"))
    path = directory / f"{test.replace(':', '.')}.json"
    path.write_bytes(data)
    return str(path)


def rsm_test(
    app: App,
    main: Main | None = None,
    *,
    iterations: int = ITERATIONS,
    seconds: float = SECONDS,
    monitors: Sequence[type[Monitor]] = (),
    mocks: Mapping[str, type[Mock[Any]]] | None = None,
    steps: int = STEPS,
    leaks: bool = True,
    seed: int = 1,
    strategies: Callable[[], list[Strategy]] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Make a test of a function.

    Args:
        app: the machines.
        main: the program outside of them. By default the function is it; else the function gets the `Report` of a test without a fault.
        iterations: runs, at most.
        seconds: after which no run begins.
        monitors: classes of monitors.
        mocks: classes of mock machines by key; one of each exists before the program begins. The program may create others.
        steps: of a run, at most.
        leaks: handlers run again, to check that nothing that they store or send depends on volatile state.
        seed: of the first run.
        strategies: returns those that decide the runs in turn; by default `portfolio`.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., None]:
        program = _async(main if main is not None else function)
        subject = Program(app, program, tuple(monitors), dict(mocks or {}), steps, leaks)
        then = function if main is not None else None
        test = RsmTest(subject, Limits(iterations, seconds), _name_of(function), seed, strategies, then)
        return _pytest_function(function, test)

    return decorate


def _async(program: Main) -> Main:
    """Return a program, which has to be a coroutine function."""
    if not inspect.iscoroutinefunction(program):
        raise InvalidArgument(
            f"expected a program `async def {program.__name__}(rsm)`, found a function that is not async"
        )
    return program


def _name_of(function: Callable[..., Any]) -> str:
    """Return the name of a test, as `module:function`."""
    return f"{function.__module__}:{function.__qualname__}"


def _pytest_function(function: Callable[..., Any], test: RsmTest) -> Callable[..., None]:
    """Return the function that pytest calls to run a test. It looks like the function under `rsm_test`, apart from its arguments."""

    def run(pytestconfig: Any = None) -> None:
        test.run(pytestconfig)

    run.__name__, run.__qualname__, run.__module__ = function.__name__, function.__qualname__, function.__module__
    run.__doc__ = function.__doc__
    parameter = inspect.Parameter("pytestconfig", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]  # a fixture, which has no default
    run.rsm_test = test  # type: ignore[attr-defined]  # `boki rsm test` finds the test by it
    return run


def rsm_test_of(found: object, name: str) -> RsmTest:
    """Return a test that a name stands for: a function under `rsm_test`, a `Program`, or a function without arguments that returns one.

    Raises:
        InvalidArgument: it is none of these.
    """
    test = getattr(found, "rsm_test", None)
    if isinstance(test, RsmTest):
        return test
    program = found() if inspect.isfunction(found) and not inspect.iscoroutinefunction(found) else found
    if isinstance(program, Program):
        return RsmTest(program, Limits(), name, 1, None, None)
    raise InvalidArgument(f"expected {name} to be a function under @rsm_test or a Program, found {found!r:.80}")
