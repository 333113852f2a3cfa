"""A process is gone when that is certain, and not when nobody may look at it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from boki_common.metadata.liveness import UNKNOWN_START, exists, is_gone, process_started


def ended() -> int:
    """The number of a process that was, and is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_process_that_can_be_seen_lives_since_it_started() -> None:
    started = process_started(os.getpid())
    assert started is not None and started > 0
    assert is_gone(os.getpid(), started) is False
    assert is_gone(os.getpid(), started - 1) is True, "its number was used again"


def test_a_process_that_ended_is_gone() -> None:
    pid = ended()
    assert process_started(pid) is None
    assert not exists(pid)
    assert is_gone(pid, 17) is True


def test_a_process_that_lives_and_cannot_be_seen_is_unknown(tmp_path: Path) -> None:
    """As under hidepid: no folder of it, or one whose files cannot be read."""
    for folder in (tmp_path, tmp_path / "none"):
        assert is_gone(os.getpid(), 17, proc=str(folder)) is None
    (tmp_path / str(os.getpid())).mkdir()
    assert is_gone(os.getpid(), 17, proc=str(tmp_path)) is None


def test_a_process_that_did_not_know_when_it_started_is_unknown_until_it_ended() -> None:
    assert is_gone(os.getpid(), UNKNOWN_START) is None
    assert is_gone(ended(), UNKNOWN_START) is True


def test_a_process_of_another_user_exists() -> None:
    assert exists(1)


@pytest.mark.parametrize("state", ["Z", "X"])
def test_a_zombie_is_gone(tmp_path: Path, state: str) -> None:
    folder = tmp_path / "12"
    folder.mkdir()
    numbers = " ".join(str(number) for number in range(4, 60))
    (folder / "stat").write_text(f"12 (a b) c) {state} {numbers}")
    assert process_started(12, proc=str(tmp_path)) == -1
    assert is_gone(12, 22, proc=str(tmp_path)) is True
    (folder / "stat").write_text(f"12 (a b) c) S {numbers}")
    assert is_gone(12, 22, proc=str(tmp_path)) is False
