"""Which files of a package a call goes through, in order: for tests of how often each is entered, and from where."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from opcode import opmap
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, Final, NamedTuple

_SUSPENDS: Final = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_YIELD: Final = opmap["YIELD_VALUE"]


class _Entry(NamedTuple):
    turn: int
    begin: str
    """Where the loop began."""
    caller: str
    """Empty: the loop itself, or what is outside of the package."""
    file: str
    function: str


class FilesEntered:
    """The files entered between the begin and the end of `following`, in this thread. Tests that use it are marked `own_interpreter`.

    A file is entered when a function of another one calls one of its own, not when a coroutine goes on. Timers may run beside: what
    is asked for has a beginning.

    Args:
        package: whose files. besides: names of files and folders in it that are not followed.
    """

    def __init__(self, package: ModuleType, *besides: str) -> None:
        assert package.__file__ is not None
        self._root: Final = f"{Path(package.__file__).parent}/"
        self._besides: Final = besides
        self._turn = 0
        self._loop: CodeType
        """What calls a callback of the loop, or goes on with a task."""
        self._entries: Final[list[_Entry]] = []
        self._calls: Final[dict[int, tuple[CodeType, int]]] = {}
        """Numbers of calls that have not ended, by the ids of their frames."""
        self._doors: Final[defaultdict[int, set[str]]] = defaultdict(set)
        """By the number of a call: the files it went to."""

    @contextmanager
    def following(self) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None and task.get_coro().cr_frame.f_back is not None  # type: ignore[union-attr]
        self._loop = task.get_coro().cr_frame.f_back.f_code  # type: ignore[union-attr]
        before = sys.getprofile()
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(before)

    def since(self, begin: str) -> list[str]:
        """The files that were entered, in order, in callbacks that began in this one."""
        return [entry.file for entry in self._entries if entry.begin == begin]

    @property
    def again(self) -> dict[str, int]:
        """Which file was entered from a file more than once in one turn of the loop, and how often; constructors do not count."""
        pairs = Counter(
            (entry.turn, f"{entry.caller} -> {entry.file}")
            for entry in self._entries
            if entry.caller and entry.function != "__init__"
        )
        return {pair: count for (_, pair), count in pairs.items() if count > 1}

    @property
    def most_doors(self) -> int:
        """To how many other files one call of a function went, at most."""
        return max(map(len, self._doors.values()))

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "return" and not _is_suspended(frame):
            self._calls.pop(id(frame), None)
        if event != "call" or frame.f_back is None:
            return
        self._turn += frame.f_back.f_code is self._loop
        entered = self._file_of(frame)
        if not entered or self._is_known(frame):
            return
        self._number(frame)
        callers = list(self._callers(frame))
        caller = self._file_of(callers[0]) if callers else ""
        if caller != entered:
            begin = self._file_of(callers[-1]) if callers else entered
            self._entries.append(_Entry(self._turn, begin, caller, entered, frame.f_code.co_name))
            if callers:
                self._doors[self._number(callers[0])].add(entered)

    def _is_known(self, frame: FrameType) -> bool:
        """Return whether a call goes on that was suspended."""
        known = self._calls.get(id(frame))
        return known is not None and known[0] is frame.f_code

    def _number(self, frame: FrameType) -> int:
        """Return the number of a call that has not ended."""
        if not self._is_known(frame):
            self._calls[id(frame)] = frame.f_code, len(self._doors)
            self._doors[len(self._doors)] = set()
        return self._calls[id(frame)][1]

    def _callers(self, frame: FrameType) -> Iterator[FrameType]:
        """Functions of the package that wait for this one, the nearest first."""
        caller = frame.f_back
        while caller is not None:
            if self._file_of(caller):
                yield caller
            caller = caller.f_back

    def _file_of(self, frame: FrameType) -> str:
        """The name below the package's folder; empty for what is not followed."""
        path = frame.f_code.co_filename
        name = path.removeprefix(self._root)
        return "" if name == path or name.startswith(self._besides) else name


def _is_suspended(frame: FrameType) -> bool:
    """Return whether a call that gives control back goes on later."""
    return bool(frame.f_code.co_flags & _SUSPENDS) and frame.f_code.co_code[frame.f_lasti] == _YIELD
