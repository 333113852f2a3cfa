"""Rules for every test of the project.

- **Nothing required is skipped.** `BOKI_REQUIRE=zookeeper,processes` names markers; a test that carries one of them and
  is skipped, for whatever reason, fails instead. Continuous integration sets it; without it a machine that lacks
  something still gets a green run, and the summary names each skipped test with its reason.
- **Nothing blocks the event loop.** While a loop runs, a blocking call (file, sleep, lock, socket, SQLite) made from code
  of ours raises `BlockingError`, wherever it is hidden. Tests themselves may read files. The marker `blocking_allowed`
  turns this off for one test, which says why.
- **Coroutines run on the loop the processes use**: uvloop where it can be imported, asyncio with `BOKI_LOOP=asyncio`.
- **A machine may stand still between any two steps.** `BOKI_STALLS=1` (with `BOKI_LOOP=asyncio`) lets the loops' clock jump at
  random, and finds tests that are steady on a quiet machine only.
- **No test hears another's logs.** Each begins with the logs of a library, quiet below warnings, whatever a command that ran
  in the process of an earlier one had configured.
- **No test leaves anything at the user's home.** What commands remember of this machine goes to a folder of the run.
- **What a test leaves behind has a time-out too**, also when it failed: pytest-timeout stops watching one that fails, and a server
  that it leaves open can keep its loop from closing for ever.
- **A time-out shows where every thread was**, also in a worker of pytest-xdist, whose own report of it goes nowhere. A test that
  keeps the interpreter's lock, where no thread of pytest-timeout can run, is ended too.
- **A test that profiles the interpreter has one to itself** (marker `own_interpreter`): what thousands of tests before it left in
  the process is neither counted nor able to harm it.
- **The collector does not look through what was collected.** A million objects of test modules stand for the whole run: pytest makes
  them without the garbage collector, and they are frozen then.
- Property tests have no deadline (the machines are shared) and print how to replay a failure;
  `--hypothesis-profile=nightly` looks longer.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Final

import hypothesis
import pytest
from blockbuster import BlockBuster, BlockBusterFunction

from boki_common import logs
from boki_common.runtime.process import loop_factory
from itests.support.stalls import Stalls

PACKAGES: Final = (
    "boki",
    "boki_bookie",
    "boki_cli",
    "boki_common",
    "boki_gateway",
    "boki_ledger",
    "boki_logbook",
    "boki_metalog",
    "boki_spark",
    "boki_spark_tools",
    "bokiflow",
    "bokiflow_tools",
    "bokilib",
    "bokiqueue",
    "bokiqueue_tools",
    "bokirsm",
    "bokirsm_tools",
    "bokistore",
    "bokistore_tools",
)

REQUIRED: Final = frozenset(name.strip() for name in os.environ.get("BOKI_REQUIRE", "").split(",") if name.strip())

# What blocks beside the calls that blockbuster knows.
ALSO_BLOCKING: Final = ("fdatasync", "fsync", "open", "pread", "preadv", "pwrite", "pwritev", "truncate", "ftruncate")

# (blocking function, file it may be called from, functions there): what only looks like blocking.
MAY_BLOCK: Final = (
    # A lock held by another thread for the few instructions of a queue operation or of a counter.
    ("threading.Lock.acquire", "/queue.py", {"put", "get", "put_nowait", "get_nowait", "qsize"}),
    ("threading.Lock.acquire", "/prometheus_client/values.py", {"inc", "set", "get"}),
    # Small flushes of a disk that has shown to be fast (docs/adr/0006).
    ("os.pwritev", "/posix_disk.py", {"write_now"}),
    ("os.pwritev", "/direct_writer.py", {"write_fully"}),
    ("os.fdatasync", "/posix_disk.py", {"write_now"}),
    # Asked not to wait (RWF_NOWAIT).
    ("os.preadv", "/posix_disk.py", {"read_at_hand"}),
    # The null device, which asyncio's own loop opens for a child process.
    ("os.open", "/subprocess.py", {"_get_devnull"}),
    # Importing a module the first time.
    ("os.listdir", "<frozen importlib._bootstrap_external>", {"_fill_cache"}),
    # A small file of the package, where a page is made; pytest's loader reads those of packages that are its plugins.
    ("io.BufferedReader.read", "/pages/assets.py", {"package_file"}),
    # A time zone that is named the first time: a small file of the machine.
    ("os.stat", "/bokiflow/model/cron.py", {"_zone"}),
    ("io.BufferedReader.read", "/bokiflow/model/cron.py", {"_zone"}),
)

hypothesis.settings.register_profile("default", deadline=None, print_blob=True)
hypothesis.settings.register_profile("nightly", deadline=None, print_blob=True, max_examples=2_000)
hypothesis.settings.load_profile("default")


_TIMER: Final = pytest.StashKey[Any]()
_STDERR: Final = pytest.StashKey[int]()
_STACKS: Final = pytest.StashKey[threading.Timer]()
_STALLS: Final = pytest.StashKey[Stalls]()
_STACKS_BEFORE_S: Final = 0.5
_ENDED_AFTER_S: Final = 5.0
_IN_OWN_INTERPRETER: Final = "BOKI_TEST_IN_OWN_INTERPRETER"


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_STDERR] = os.dup(2)  # standard error, before a test's capture takes its place
    known = {str(line).partition(":")[0].partition("(")[0].strip() for line in config.getini("markers")}
    unknown = sorted(REQUIRED - known)
    if unknown:
        raise pytest.UsageError(f"expected BOKI_REQUIRE to name markers, found {unknown}; known: {sorted(known)}")
    if seed := os.environ.get("BOKI_STALLS"):
        if loop_factory() is asyncio.new_event_loop:
            config.stash[_STALLS] = Stalls(int(seed))
            config.stash[_STALLS].install()
        else:
            raise pytest.UsageError(
                "expected BOKI_LOOP=asyncio with BOKI_STALLS, found a loop whose clock cannot be moved"
            )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects without the garbage collector, and keeps from it what stands then.

    It would look through a growing heap sixty times, ten of thirty seconds, and through all of it again during tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_report_header() -> str:
    return f"boki: loop {loop_factory().__module__.partition('.')[0]}, required: {', '.join(sorted(REQUIRED)) or 'nothing'}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    stalls = item.config.stash.get(_STALLS, None)
    if stalls is not None:
        stalls.begin(item.nodeid)


@pytest.fixture(scope="session", autouse=True)
def _state_of_the_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"boki": loop_factory()}


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Keeps what the plugin makes of ini file, marker and option; the plugin sets its timer then.

    A thread of Python writes the stacks, because it holds the interpreter's lock meanwhile. `dump_traceback_later` reads the frames of
    threads that go on, which can crash the process; it serves for a test that never gives the lock back, whose frames stand still.
    """
    item.stash[_TIMER] = settings
    if settings.timeout and settings.timeout > _STACKS_BEFORE_S:
        stderr = item.config.stash[_STDERR]
        stacks = threading.Timer(
            settings.timeout - _STACKS_BEFORE_S, faulthandler.dump_traceback, kwargs={"file": stderr}
        )
        stacks.name = f"stacks of {item.nodeid}"
        item.stash[_STACKS] = stacks
        stacks.start()
        faulthandler.dump_traceback_later(settings.timeout + _ENDED_AFTER_S, exit=True, file=stderr)


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> None:
    faulthandler.cancel_dump_traceback_later()
    stacks = item.stash.get(_STACKS, None)
    if stacks is not None:
        stacks.cancel()
        stacks.join()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Begins the test's time-out anew for its end."""
    settings = item.stash.get(_TIMER, None)
    if settings is not None:
        item.ihook.pytest_timeout_cancel_timer(item=item)
        item.ihook.pytest_timeout_set_timer(item=item, settings=settings)
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test that is marked so in an interpreter of its own."""
    if pyfuncitem.get_closest_marker("own_interpreter") is None or _IN_OWN_INTERPRETER in os.environ:
        return None
    options = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    done = subprocess.run(
        [sys.executable, *options, "-m", "", pyfuncitem.nodeid],
        cwd=pyfuncitem.config.rootpath,
        env=os.environ | {_IN_OWN_INTERPRETER: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}", pytrace=False)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turns the skip of a required test into a failure that gives the reason."""
    report = yield
    demanded = sorted(REQUIRED & {mark.name for mark in item.iter_markers()})
    if report.skipped and demanded and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"BOKI_REQUIRE demands {', '.join(demanded)}, but the test was skipped: {_reason(report)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module that skips itself cannot say which markers its tests have: with BOKI_REQUIRE it fails."""
    report = yield
    if report.skipped and REQUIRED:
        report.outcome = "failed"
        report.longrepr = f"BOKI_REQUIRE is set, but the module was skipped: {_reason(report)}"
    return report


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)


@pytest.fixture(scope="session", autouse=True)
def _blocking_is_an_error() -> Iterator[BlockBuster]:
    guard = BlockBuster(scanned_modules=list(PACKAGES))
    for name in ALSO_BLOCKING:
        guard.functions[f"os.{name}"] = BlockBusterFunction(os, name, scanned_modules=list(PACKAGES))
    for function, file, names in MAY_BLOCK:
        guard.functions[function].can_block_in(file, names)
    guard.activate()
    yield guard
    guard.deactivate()


@pytest.fixture(autouse=True)
def _logs_of_a_library() -> Iterator[None]:
    with logs.configured(level="warning"):
        yield


@pytest.fixture(autouse=True)
def _blocking_where_a_test_says_so(
    request: pytest.FixtureRequest, _blocking_is_an_error: BlockBuster
) -> Iterator[None]:
    if request.node.get_closest_marker("blocking_allowed") is None:
        yield
        return
    _blocking_is_an_error.deactivate()
    yield
    _blocking_is_an_error.activate()
