"""Which files of the engine a call goes through, in order: for tests of how often each is entered, and from where."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Final

import boki_logbook

_ROOT: Final = f"{Path(boki_logbook.__file__).parent}/"


class FilesEntered:
    """What happens between the begin and the end of `following`, in this thread. A file is entered when a function of another one
    calls one of its own; the first is entered by the event loop. Timers may run beside: what is asked for has a beginning."""

    def __init__(self) -> None:
        self._entered: list[tuple[str, str]] = []
        """Where the loop began, and the file."""
        self._doors: dict[FrameType, set[str]] = defaultdict(set)
        """Of each call of a function, which is kept so that no other one takes its place: the files it went to."""

    @contextmanager
    def following(self) -> Iterator[None]:
        before = sys.getprofile()
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(before)

    def since(self, begin: str) -> list[str]:
        """The files that were entered, in order, in callbacks that began in this one."""
        return [entered for begun, entered in self._entered if begun == begin]

    @property
    def most_doors(self) -> int:
        """To how many other files one call of a function went, at most."""
        return max(map(len, self._doors.values()))

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        entered = _file_of(frame.f_code.co_filename)
        if event != "call" or not entered:
            return
        callers = list(_callers(frame))
        if not callers:
            self._entered.append((entered, entered))
        elif _file_of(callers[0].f_code.co_filename) != entered:
            self._entered.append((_file_of(callers[-1].f_code.co_filename), entered))
            self._doors[callers[0]].add(entered)


def _callers(frame: FrameType) -> Iterator[FrameType]:
    """Functions of the engine that wait for this one, the nearest first."""
    caller = frame.f_back
    while caller is not None:
        if _file_of(caller.f_code.co_filename):
            yield caller
        caller = caller.f_back


@cache
def _file_of(path: str) -> str:
    """The name below the engine's folder; empty for what is not the engine, or only its model."""
    name = path.removeprefix(_ROOT)
    return "" if name == path or name.startswith("testing/") else name
