"""A script in two processes with different hash seeds: no order of a set may reach a decision of a simulated run."""

from __future__ import annotations

import os
import subprocess
import sys


def lines_of_two(script: str) -> tuple[list[str], list[str]]:
    """Return the lines that a script of Python prints in each process, which prints no errors."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("1", "2")
    ]
    answers = [process.communicate(timeout=250) for process in started]
    assert [errors for _, errors in answers] == ["", ""]
    (one, _), (other, _) = answers
    return one.splitlines(), other.splitlines()
