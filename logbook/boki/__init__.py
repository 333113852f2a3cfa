"""Boki: a shared log for Python. Many totally ordered LogBooks with tags and selective reads.

    async with boki.connect("boki://127.0.0.1:7040") as client:
        book = client.book("orders")
        seqnum = await book.append(b"...", tags=["user/1"])
        record = await book.read_next("user/1", at_least=seqnum)
        async for record in book.read("user/1", follow=True): ...

- Appends of one session to one book are decided in the order of the calls, but for those that look at the book first (`expect=` of
  what the session has not seen) and for the records of an `append_many` that the window has no place for; and applied once,
  whatever fails.
- `ticket.outcome()` says what certainly became of an append; a named writer's numbers survive restarts.
- Reads of a session see all that it has seen and appended before.
- `boki.sync` is the same for scripts and notebooks; `boki.testing.MemoryCluster` is a cluster in memory, for tests.
- Errors are a tree under `BokiError`; `error.definite` says whether something may have been applied, `error.retryable`
  whether the same call may succeed later, `error.facts` what was expected and found.
"""

from boki import sync, testing
from boki._book import Book
from boki._client import Client, connect, connect_like
from boki._cursor import Cursor
from boki._iterator import RecordIterator
from boki._outcome import Committed, Never, Outcome, Why
from boki._record import Gap, Record
from boki._since import Since
from boki._ticket import Duplicate, Ticket
from boki._writer import Writer
from boki_common.engine.engine_protocol import GapKind
from boki_common.errors import (
    AnswerForgotten,
    BokiError,
    CallTimeout,
    ClosedError,
    Conflict,
    ConnectionLost,
    DiskFull,
    InvalidArgument,
    InvalidTag,
    IteratorBusy,
    LogBookError,
    Lost,
    NetworkError,
    NumberReused,
    OutcomeUnknown,
    Overloaded,
    ProtocolError,
    RecordTooLarge,
    RemoteError,
    TooManyWriters,
    Trimmed,
    Unreachable,
    UsageError,
    VersionMismatch,
    WindowFull,
    WriterForgotten,
    WrongCluster,
    WrongLoop,
)
from boki_common.runtime.ports import MachineClock as Clock
from boki_common.runtime.ports import Random
from boki_common.runtime.process import SystemClock, SystemRandom

__all__ = [
    "AnswerForgotten",
    "BokiError",
    "Book",
    "CallTimeout",
    "Client",
    "Clock",
    "ClosedError",
    "Committed",
    "Conflict",
    "ConnectionLost",
    "DiskFull",
    "Cursor",
    "Duplicate",
    "Gap",
    "GapKind",
    "InvalidArgument",
    "InvalidTag",
    "IteratorBusy",
    "LogBookError",
    "Lost",
    "NetworkError",
    "Never",
    "NumberReused",
    "Outcome",
    "OutcomeUnknown",
    "Overloaded",
    "ProtocolError",
    "Record",
    "Random",
    "RecordIterator",
    "RecordTooLarge",
    "RemoteError",
    "Since",
    "SystemClock",
    "SystemRandom",
    "Ticket",
    "TooManyWriters",
    "Trimmed",
    "Unreachable",
    "UsageError",
    "VersionMismatch",
    "Why",
    "WindowFull",
    "Writer",
    "WriterForgotten",
    "WrongCluster",
    "WrongLoop",
    "connect",
    "connect_like",
    "sync",
    "testing",
]
