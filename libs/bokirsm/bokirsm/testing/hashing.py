"""The builtin `hash` in a run: of texts and bytes it differs from one process to the next, and is the same when a run is replayed.

The hash of a text is salted by each Python process, so a machine that stores it, or sends by it, does otherwise after a crash. In a run
the salt is that of the machine's process. Dicts and sets do not call the builtin, and methods `__hash__` get that of Python.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import xxhash

_BITS: Final = 61


class Hashes:
    """The builtin `hash` of a run.

    Attributes:
        process: number of the process that the running handler is in.
    """

    def __init__(self) -> None:
        self.process = 0

    @contextmanager
    def instead(self) -> Iterator[None]:
        """Replace the builtin of this process, which runs nothing else meanwhile."""
        real = builtins.hash

        def salted(value: object, /) -> int:
            if type(value) not in (str, bytes, tuple) or sys._getframe(1).f_code.co_name == "__hash__":
                return real(value)
            return self._salted(value)

        builtins.hash = salted
        try:
            yield
        finally:
            builtins.hash = real

    def _salted(self, value: object) -> int:
        if isinstance(value, str):
            return xxhash.xxh3_64_intdigest(value.encode("utf-8", "surrogatepass"), self.process) >> (64 - _BITS)
        if isinstance(value, bytes):
            return xxhash.xxh3_64_intdigest(value, self.process) >> (64 - _BITS)
        if isinstance(value, tuple):
            return self._salted(repr([self._salted(one) for one in value]))
        return value.__hash__()
