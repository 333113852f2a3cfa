"""Stop code of users that keeps an event loop from running: `time.sleep(20)`, a long loop without an `await`.

    watch = CodeWatch(after_s=5.0)
    watch.run(call, report)       # in the event loop's thread; CodeStuck if `call` ran too long
    watch.close()

A thread looks at the piece of code that runs. If it is the same one for `after_s`, the thread calls `report` with its stack, once, and has
the interpreter raise `CodeStuck` in it, at the next bytecode. In the main thread of a Unix process it also sends SIGURG there, which ends a
blocking system call (`time.sleep`, a read of a socket, a wait for a lock) early. Elsewhere, and in C code that computes, the call returns
first. Code that still runs at the next look is reported by `remains`, once. Code that catches `CodeStuck` is interrupted again.

SIGURG does nothing by default, and its handler here does nothing; Go's runtime interrupts its threads by it for the same reason. It is not
sent if the program has a handler of its own for it.

Invariant: `CodeStuck` is pending in a thread only while its piece runs. `_leave` takes back what was not raised yet, under the lock that
the watching thread holds when it decides. A piece that was interrupted raises `CodeStuck` whatever became of it.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Final, TypeVar

from boki_common.logs import get_logger

T = TypeVar("T")

log = get_logger(__name__)

LOOKS: Final = 4
"""The thread looks so many times in `after_s`, and so is late by at most a quarter of it."""
STACK_FRAMES: Final = 32
_WAKE: Final[signal.Signals | None] = getattr(signal, "SIGURG", None) if hasattr(signal, "pthread_kill") else None


class CodeStuck(BaseException):
    """Raised in code of users that ran for too long. No `Exception`, so that code which catches all errors does not catch it.

    Attributes:
        stack: the code's stack when it was interrupted, innermost call last.
    """

    stack = ""


class _Piece:
    """A piece of code that runs. `stack`: "" until it is interrupted. `remains`: None once it was called."""

    __slots__ = ("remains", "report", "stack", "thread")

    def __init__(self, report: Callable[[str], None], remains: Callable[[str], None] | None, thread: int) -> None:
        self.report = report
        self.remains = remains
        self.stack = ""
        self.thread = thread


class CodeWatch:
    """A thread that watches the code of one event loop, from the first `run` on until `close`, or until the watch is collected."""

    def __init__(self, after_s: float) -> None:
        """
        Args:
            after_s: seconds that a piece of code may run without giving the event loop back.
        """
        self.after_s: Final = after_s
        self._piece: _Piece | None = None
        self._lock: Final = threading.Lock()
        self._closed: Final = threading.Event()
        self._thread: threading.Thread | None = None

    def run(
        self, call: Callable[[], T], report: Callable[[str], None], remains: Callable[[str], None] | None = None
    ) -> T:
        """Call a piece of code and return what it returns. Not reentrant.

        Args:
            report: called with the code's stack from the watching thread, at most once, when the code is interrupted.
            remains: the same, when the code still runs a quarter of `after_s` later.

        Raises:
            CodeStuck: it ran too long. What the code raises.
        """
        if self._thread is None:
            watching = (weakref.ref(self), self._closed, self.after_s / LOOKS)
            self._thread = threading.Thread(target=_look_on, args=watching, name="boki code watch", daemon=True)
            self._thread.start()
            _install_wake()
        piece = _Piece(report, remains, threading.get_ident())
        try:
            try:
                self._piece = piece
                result = call()
            finally:
                self._leave(piece)
        except CodeStuck:
            self._leave(piece)
            raise self._stuck(piece) from None
        if piece.stack:
            raise self._stuck(piece)
        return result

    def close(self) -> None:
        """End the thread. Idempotent."""
        self._closed.set()

    def _leave(self, piece: _Piece) -> None:
        with self._lock:
            if self._piece is piece:
                self._piece = None
                if piece.stack:
                    _raise_in(piece.thread, None)

    @staticmethod
    def _stuck(piece: _Piece) -> CodeStuck:
        error = CodeStuck("code ran for too long without an await")
        error.stack = piece.stack
        return error

    def _interrupt(self, piece: _Piece, *, again: bool = False) -> None:
        """Interrupt a piece of code. With `again` also one that was interrupted and caught that: not sooner than `after_s` later.

        A second interruption at once could reach `run` while it handles the first one, and keep it from leaving the piece.
        """
        with self._lock:
            frame = sys._current_frames().get(piece.thread)
            if self._piece is not piece or frame is None or (piece.stack and not again):
                return
            first = not piece.stack
            piece.stack = piece.stack or _stack_of(frame)
            _raise_in(piece.thread, CodeStuck)
            _wake(piece.thread)
        if first:
            _tell(piece.report, piece.stack)

    def _remains(self, piece: _Piece) -> None:
        """Report, once, a piece of code that was interrupted at an earlier look and still runs."""
        with self._lock:
            remains, piece.remains = (
                (piece.remains, None) if self._piece is piece and piece.stack else (None, piece.remains)
            )
        if remains is not None:
            _tell(remains, piece.stack)


def _look_on(reference: weakref.ref[CodeWatch], closed: threading.Event, every_s: float) -> None:
    """Watch until `closed` is set, or the watch is collected: its owner was dropped without an end."""
    seen: _Piece | None = None
    looks = 0
    while not closed.wait(every_s):
        watch = reference()
        if watch is None:
            return
        piece = watch._piece
        looks = looks + 1 if piece is not None and piece is seen else 0
        seen = piece
        if piece is not None and looks >= LOOKS:
            watch._interrupt(piece, again=True)
            looks = 0
        elif piece is not None and looks:
            watch._remains(piece)
        del watch, piece  # while it waits, the thread keeps nothing alive


def _tell(report: Callable[[str], None], stack: str) -> None:
    """Call a report. Its errors are logged: the thread watches on."""
    try:
        report(stack)
    except Exception as error:  # noqa: BLE001 - a defect of the caller
        log.error("report of stuck code failed", error=repr(error))


def _stack_of(frame: FrameType) -> str:
    """The calls below `CodeWatch.run`, innermost last."""
    calls = traceback.extract_stack(frame)
    outside = max((at for at, call in enumerate(calls) if (call.filename, call.name) == (__file__, "run")), default=-1)
    return "".join(traceback.format_list(calls[outside + 1 :][-STACK_FRAMES:])) or "no stack"


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Have the interpreter raise an error in a thread at its next bytecode; None takes back one that is not raised yet."""
    raised = ctypes.py_object(error) if error is not None else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)


def _install_wake() -> None:
    """Have SIGURG end a blocking system call of this thread, if it is the main one and the program does not handle SIGURG itself."""
    is_main = threading.current_thread() is threading.main_thread()
    if _WAKE is not None and is_main and signal.getsignal(_WAKE) == signal.SIG_DFL:
        signal.signal(_WAKE, _woken)


def _wake(thread: int) -> None:
    """Interrupt the system call that a thread is in; nothing unless `_install_wake` was called there."""
    if _WAKE is not None and thread == threading.main_thread().ident and signal.getsignal(_WAKE) is _woken:
        signal.pthread_kill(thread, _WAKE)


def _woken(*_: object) -> None:
    """Handle the signal: the interpreter raises what is pending when it calls this, and the system call is not begun again."""
