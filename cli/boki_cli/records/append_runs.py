"""What this machine remembers of `boki append FILE`, so that the same command again continues exactly.

Records of a file are appended under numbers of a named writer, and the log knows the last of them. What it cannot know is which
number the first record of the file had, and whether a run was over. So for each (cluster, book, file) there is a small file below
the state directory, `$XDG_STATE_HOME/boki/appends` or `~/.local/state/boki/appends`:

    {"version": 1, "source": "/data/flights.csv", "book": "flights", "writer": "append-7f3a…", "base": 1200, "skip": 0, "open": true}

- Record i of the run, from 1 on, has the number base + i. So last - base of them are committed.
- `open` is written before the first record, and taken away when all are committed. A file whose run is open is continued; one
  whose run is over is appended once more, on purpose, behind the numbers of the runs before. So one file has one writer.
- The writer is random: two machines, or two directories of state, never share one.
- A lock is held for the run: the same file is not appended to one book by two commands at once.

It knows no client and no records.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from pathlib import Path
from typing import Final

import msgspec

from boki_common.errors import DECODE_FAULTS, BokiError, CorruptData

VERSION: Final = 1
STATE_VARIABLE: Final = "XDG_STATE_HOME"
BLOCK_BYTES: Final = 4_096
_FOLDER: Final = Path("boki", "appends")


class RunUnderWay(BokiError):
    """Another command appends the same file to the same book."""

    retryable = True


class _State(msgspec.Struct, frozen=True):
    version: int
    source: str
    book: str
    writer: str
    base: int
    skip: int
    open: bool


class AppendRun:
    """The memory of one file and book; see the module. Close it.

    Attributes:
        writer: the name of the writer.
        base: its last number before the first record of this run.
        continues: whether a run before this one was not over.
    """

    def __init__(self, path: Path, descriptor: int, state: _State | None, source: str, book: str, skip: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._source = source
        self._book = book
        self._skip = skip
        self.writer = f"append-{secrets.token_hex(16)}" if state is None else state.writer
        self.base = 0 if state is None else state.base
        self.continues = state is not None and state.open and state.skip == skip

    @classmethod
    def of_file(cls, cluster: str, book: str, file: str, *, skip: int) -> AppendRun:
        """What is remembered of a file; the state directory is made when absent. Raises RunUnderWay: another process appends it
        now; CorruptData: what is remembered cannot be read; OSError: nothing can be remembered here."""
        source = os.path.realpath(file)
        folder = state_folder()
        folder.mkdir(parents=True, exist_ok=True)
        key = hashlib.sha256("\0".join((cluster, book, source)).encode(errors="surrogateescape")).hexdigest()
        path = folder / f"{key[:40]}.json"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(descriptor, file, book)
            return cls(path, descriptor, _read(path, descriptor), source, book, skip)
        except BaseException:
            os.close(descriptor)
            raise

    def begin(self, last: int) -> int:
        """Remembers that the run is under way, before anything is appended. Returns how many of its records are committed.
        `last`: the last number of the writer in the log."""
        if not self.continues or last < self.base:  # of a book that is not the one of that run, say: of another cluster
            self.continues = False
            self.base = last
        self._write(is_open=True)
        return last - self.base

    def over(self) -> None:
        """All records are committed: the next run is another one."""
        self._write(is_open=False)

    def close(self) -> None:
        """Gives up the lock. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, *, is_open: bool) -> None:
        """In place, so that the lock stays with the file: one write of whole blocks, filled up with blanks."""
        state = _State(VERSION, self._source, self._book, self.writer, self.base, self._skip, is_open)
        encoded = msgspec.json.encode(state)
        size = max(-(-(len(encoded) + 1) // BLOCK_BYTES) * BLOCK_BYTES, os.fstat(self._descriptor).st_size)
        os.pwrite(self._descriptor, encoded.ljust(size - 1) + b"\n", 0)
        os.fsync(self._descriptor)


def state_folder() -> Path:
    """Where commands of this user remember what they were doing."""
    home = os.environ.get(STATE_VARIABLE, "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".local" / "state") / _FOLDER


def _lock(descriptor: int, file: str, book: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RunUnderWay(
            f"another `boki append` of {file} to the book {book} is under way on this machine; wait for it, or name a "
            "writer of your own: --writer NAME"
        ) from None


def _read(path: Path, descriptor: int) -> _State | None:
    value = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    if not value:
        return None
    try:
        state = msgspec.json.decode(value, type=_State)
    except DECODE_FAULTS as error:
        raise CorruptData(
            f"expected the state of an earlier `boki append` in {path}, found {value[:100]!r}: {error}. Remove the file to begin "
            "anew; read the book first, to know what is there",
            path=str(path),
        ) from error
    if state.version != VERSION:
        raise CorruptData(f"expected version {VERSION} in {path}, found {state.version}: use the Boki that wrote it")
    return state
