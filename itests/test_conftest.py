"""The rules that the root conftest.py lays on every test, each shown by a small suite that breaks it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

Suite = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    """Runs pytest on one file under the project's rules."""

    def run(text: str, *, require: str = "", loop: str = "", stalls: str = "") -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_it.py").write_text(text)
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("BOKI_", "COVERAGE", "PYTEST"))
        }
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-p",
                "conftest",
                "-c",
                ROOT / "pyproject.toml",
                "--rootdir",
                tmp_path,
                tmp_path,
            ],
            env=kept | {"PYTHONPATH": str(ROOT), "BOKI_REQUIRE": require, "BOKI_LOOP": loop, "BOKI_STALLS": stalls},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


SKIPS = """
import pytest

@pytest.fixture
def server():
    pytest.skip("no Java runtime was found")

@pytest.mark.zookeeper
def test_needs_it(server):
    pass

def test_needs_nothing():
    pass
"""


def test_what_a_machine_lacks_is_skipped_and_the_summary_says_why(suite: Suite) -> None:
    ran = suite(SKIPS)
    assert ran.returncode == 0, ran.stdout
    assert "1 passed, 1 skipped" in ran.stdout
    assert "no Java runtime was found" in ran.stdout


def test_what_is_required_fails_instead_of_being_skipped(suite: Suite) -> None:
    ran = suite(SKIPS, require="processes, zookeeper")
    assert ran.returncode == 1, ran.stdout
    assert "BOKI_REQUIRE demands zookeeper, but the test was skipped" in ran.stdout
    assert "no Java runtime was found" in ran.stdout


def test_a_module_that_skips_itself_fails_too(suite: Suite) -> None:
    module = "import pytest\npytest.skip('not today', allow_module_level=True)\n"
    assert suite(module).returncode == 5
    ran = suite(module, require="zookeeper")
    assert ran.returncode not in (0, 5), ran.stdout
    assert "not today" in ran.stdout


def test_requiring_what_no_marker_names_is_an_error(suite: Suite) -> None:
    ran = suite("def test_it(): pass\n", require="zookeper")
    assert ran.returncode == 4
    assert "expected BOKI_REQUIRE to name markers, found ['zookeper']" in ran.stderr


BLOCKS = """
import pathlib
import pytest
from boki_common.settings import load_settings

SETTINGS = pathlib.Path(__file__).with_name("boki.toml")
SETTINGS.touch()

class Nothing:
    pass

import dataclasses
Nothing = dataclasses.dataclass(Nothing)

async def test_code_of_ours_blocks():
    load_settings(Nothing, file=SETTINGS, environ={})

@pytest.mark.blocking_allowed
async def test_and_says_so():
    load_settings(Nothing, file=SETTINGS, environ={})

async def test_a_test_reads_a_file():
    assert SETTINGS.read_text() == ""

def test_without_a_loop_nothing_is_blocked():
    load_settings(Nothing, file=SETTINGS, environ={})
"""


def test_blocking_the_event_loop_fails(suite: Suite) -> None:
    ran = suite(BLOCKS)
    assert ran.returncode == 1, ran.stdout
    assert "1 failed, 3 passed" in ran.stdout
    assert "BlockingError: Blocking call to" in ran.stdout


WHICH_LOOP = """
import asyncio

async def test_loop():
    assert type(asyncio.get_running_loop()).__module__.startswith("{}")
"""


def test_coroutines_run_on_the_loop_that_was_asked_for(suite: Suite) -> None:
    assert suite(WHICH_LOOP.format("asyncio"), loop="asyncio").returncode == 0
    pytest.importorskip("uvloop")
    assert suite(WHICH_LOOP.format("uvloop")).returncode == 0


IN_TIME = """
import asyncio

async def test_some_steps_take_less_than_a_second():
    async with asyncio.timeout(1):
        for _ in range(400):
            await asyncio.sleep(0)
"""


def test_a_test_that_a_slow_machine_fails_is_found_on_a_fast_one(suite: Suite) -> None:
    ran = suite(IN_TIME, loop="asyncio", stalls="1")
    assert ran.returncode == 1 and "TimeoutError" in ran.stdout, ran.stdout
    assert "expected BOKI_LOOP=asyncio with BOKI_STALLS" in suite(IN_TIME, stalls="1").stderr


HANGS = """
import asyncio
import pytest

@pytest.mark.timeout(1, func_only=True)
async def test_waits_for_ever():
    await asyncio.Event().wait()
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_test_that_hangs_is_ended(suite: Suite, loop: str) -> None:
    pytest.importorskip(loop)
    ran = suite(HANGS, loop=loop)
    assert ran.returncode == 1
    assert "Timeout" in ran.stdout


HANGS_AT_ITS_END = """
import asyncio
import pytest

@pytest.fixture
async def left_behind():
    yield
    await asyncio.Event().wait()

@pytest.mark.timeout(1)
async def test_fails(left_behind):
    assert False
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_the_end_of_a_test_that_failed_is_ended_when_it_hangs(suite: Suite, loop: str) -> None:
    pytest.importorskip(loop)
    ran = suite(HANGS_AT_ITS_END, loop=loop)
    assert ran.returncode == 1
    assert "Timeout" in ran.stdout


KEEPS_THE_LOCK = """
import ctypes
import pytest

@pytest.mark.timeout(1, func_only=True)
def test_keeps_the_lock():
    ctypes.PyDLL(None).sleep(60)
"""


def test_a_test_that_keeps_the_interpreters_lock_is_ended(suite: Suite) -> None:
    ran = suite(KEEPS_THE_LOCK)
    assert ran.returncode == 1
    assert "in test_keeps_the_lock" in ran.stderr


BUSY_AT_ITS_TIME_OUT = """
import pytest

def deep(depth):
    return [deep(depth - 1) for _ in range(2)] if depth else []

@pytest.mark.timeout(1, func_only=True)
def test_calls_for_ever():
    while True:
        deep(12)
"""


def test_stacks_of_a_busy_test_are_read_while_it_rests(suite: Suite) -> None:
    ran = suite(BUSY_AT_ITS_TIME_OUT)
    assert ran.returncode == 1, ran.stderr
    assert "in test_calls_for_ever" in ran.stderr


def test_a_warning_is_an_error(suite: Suite) -> None:
    assert "1 failed" in suite("import warnings\ndef test_it(): warnings.warn('x')\n").stdout


LOGS = """
import io
import pytest
from boki_common import logs

@pytest.mark.parametrize("one", ["first", "second"])
def test_hears_no_other_and_disturbs_it(capsys, one):
    logs.get_logger("bookie").info("hidden")
    logs.get_logger("bookie").warning("shown")
    found = capsys.readouterr().err
    assert "hidden" not in found and "shown" in found
    logs.configure(level="debug", stream=io.StringIO())
"""


def test_no_test_has_the_logs_that_another_configured(suite: Suite) -> None:
    assert "2 passed" in suite(LOGS).stdout


def test_nightly_tests_wait_for_the_night(suite: Suite) -> None:
    ran = suite("import pytest\n@pytest.mark.nightly\ndef test_it(): pass\n")
    assert "1 deselected" in ran.stdout
