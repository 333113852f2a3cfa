"""Notes of a process of a chaos run: each line is one call to the kernel, so the file has every line, however the process ended."""

from __future__ import annotations

import os


class Notes:
    """Lines of a process, in a file that outlives it."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, *words: str) -> None:
        """Write a line down."""
        line = " ".join(words).encode() + b"\n"
        assert os.write(self._file, line) == len(line)
