"""A shell may close standard streams, or take what is printed only in part: commands say so, and never crash over it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from boki_cli.testing.commands import run_command_line

pytestmark = pytest.mark.processes

SHELL = '"$0" -m boki_cli.main "$@"'


def in_shell(redirected: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a command line of `boki` in a process of its own, with redirections as a shell writes them."""
    command = ["bash", "-c", f"{SHELL} {redirected}", sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def filled_url(dev_url: str) -> str:
    lines = b"".join(b'{"n": %d, "text": "%s"}\n' % (number, b"x" * 100) for number in range(5_000))
    assert run_command_line("append", "-", "--book", "b", "--url", dev_url, stdin=lines).code == 0
    return dev_url


def test_a_reader_that_has_enough_is_a_normal_end(filled_url: str) -> None:
    done = in_shell("| head -1; exit ${PIPESTATUS[0]}", "read", "--book", "b", "--url", filled_url)
    assert (done.returncode, len(done.stdout.splitlines()), done.stderr) == (0, 1, "")


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_following_ends_with_its_reader_though_nothing_is_appended(
    filled_url: str, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOKI_LOOP", loop)
    done = in_shell("| head -1; exit ${PIPESTATUS[0]}", "tail", "-f", "-n", "2", "--book", "b", "--url", filled_url)
    assert (done.returncode, len(done.stdout.splitlines()), done.stderr) == (0, 1, "")


def test_an_output_that_is_full_is_said(filled_url: str) -> None:
    for arguments in (("read", "--book", "b"), ("read", "--book", "b", "--limit", "1"), ("status",)):
        done = in_shell("> /dev/full", *arguments, "--url", filled_url)
        assert done.stderr == "Error: cannot write to standard output: No space left on device\n"
        assert done.returncode == 2


@pytest.mark.parametrize("closed", [">&-", "<&- >&-", "2>&- >&- <&-"])
def test_no_connection_gets_the_number_of_a_closed_stream(filled_url: str, closed: str) -> None:
    done = in_shell(closed, "read", "--book", "b", "--url", filled_url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_standard_input_that_is_closed_is_said(filled_url: str) -> None:
    done = in_shell("<&-", "append", "-", "--book", "c", "--url", filled_url)
    expected = "Error: cannot read standard input: it is closed; give a file, or pipe something in\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)


def test_standard_input_may_be_a_device_or_a_file(filled_url: str) -> None:
    done = in_shell("< /dev/null", "append", "-", "--book", "c", "--url", filled_url)
    assert (done.returncode, done.stdout[:10], done.stderr) == (0, "0 records ", "")
    endless = in_shell("< /dev/zero", "append", "-", "--book", "c", "--format", "jsonl", "--url", filled_url)
    assert endless.returncode == 2
    assert "standard input, line 1: expected a record of at most" in endless.stderr
