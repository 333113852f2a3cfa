"""Feeds every decoder of `targets` with what atheris thinks of, guided by the branches it reaches. Not a test of pytest's.

    make fuzz                                                              # ten minutes; installs atheris into .venv
    .venv/bin/python -m itests.fuzz.decoders -max_total_time=60            # options are libFuzzer's

The first byte of an input chooses the decoder. It begins with valid samples, recorded ones where Apache's clients make them. A
finding is written to a file `crash-…`; give that file as argument to see it again. Shortly before the end a line for each decoder tells
how often it was fed, and how often it took what it was given.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

atheris: Any = importlib.import_module("atheris")
"""Not among the locked libraries, so nobody who reads types knows it."""

with atheris.instrument_imports(include=["boki_common", "boki_bookie", "boki_metalog", "boki_logbook"]):
    from itests.fuzz.targets import TARGETS, feed, seeds

TELL_BEFORE_S: Final = 1.0
"""libFuzzer ends the process by itself, without a word to Python."""
_LIMIT: Final = "-max_total_time="


class Counts:
    """How often each decoder was fed."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds - TELL_BEFORE_S if seconds else None
        self._fed, self._taken = [0] * len(TARGETS), [0] * len(TARGETS)

    def one_input(self, data: bytes) -> None:
        if not data:
            return
        place = data[0] % len(TARGETS)
        self._fed[place] += 1
        self._taken[place] += feed(TARGETS[place], data[1:])
        if self._ends is not None and time.monotonic() >= self._ends:
            self._ends = None
            self._tell()

    def _tell(self) -> None:
        for target, fed, taken in zip(TARGETS, self._fed, self._taken, strict=True):
            print(f"{target.name}: {fed:,} inputs, {taken:,} taken")
        print(f"decoders: {sum(self._fed):,} inputs", flush=True)


def main() -> None:
    seconds = [float(one.removeprefix(_LIMIT)) for one in sys.argv if one.startswith(_LIMIT)]
    counts = Counts(seconds[-1] if seconds else 0.0)
    with tempfile.TemporaryDirectory() as folder:
        for number, (place, sample) in enumerate(seeds()):
            (Path(folder) / f"{number}").write_bytes(bytes((place,)) + sample)
        named = any(not argument.startswith("-") for argument in sys.argv[1:])
        atheris.Setup(sys.argv if named else [*sys.argv, folder], counts.one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
