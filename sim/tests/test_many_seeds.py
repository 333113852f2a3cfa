"""A hundred and fifty clusters under all profiles, in every run; the same seeds, so a failure here is a change's."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.timeout(400)
def test_a_hundred_and_fifty_seeds_of_all_profiles_hold() -> None:
    command = [
        sys.executable,
        "-m",
        "boki_cli.main",
        "sim",
        "run",
        "--seeds",
        "150",
        "--profile",
        "all",
        "--seconds",
        "3",
    ]
    done = subprocess.run([*command, "--jobs", "2"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "150 seeds, 0 failed" in done.stdout + done.stderr
