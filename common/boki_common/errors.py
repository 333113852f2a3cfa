"""Every error of Boki, in one tree.

The type says what failed and who broke the contract. Facts are attributes (`error.ledger_id`), given as keyword arguments
and kept in `error.facts`. Two class attributes are for what a caller may do:

- `definite`: the operation certainly was not applied. False means *perhaps applied*: the outcome is unknown.
- `retryable`: the same call may succeed later without anybody changing anything.

A message tells a person what was expected, what was found, and what to do next.

    BokiError
    ├── UsageError             the caller broke the contract
    │   ├── InvalidArgument, RecordTooLarge, InvalidTag, WindowFull, ClosedError,
    │   │   IteratorBusy, WrongCluster, WrongLoop
    │   └── SettingsError
    ├── ProtocolError          the peer sent bytes that cannot be right
    │   └── VersionMismatch
    ├── NetworkError           Unreachable (definite), ConnectionLost, CallTimeout (perhaps applied)
    ├── Overloaded             a bounded queue is full
    ├── ThreadsExhausted       all threads run functions that were given up
    ├── AccessError            Unauthenticated (no token, or a wrong one), NotPermitted (not for this peer)
    ├── StorageError           CorruptData, DiskFull, DiskFailed, WrongDirectory, DirectoryInUse
    ├── MetadataError          NoNode, NodeExists, BadVersion, NotEmpty, MetadataUnavailable, MetadataRefused,
    │                          MetadataUnknown
    ├── LedgerError            NoSuchLedger, NoSuchEntry, EntryUnknown, LedgerFenced, LedgerClosed, NotEnoughBookies, …
    ├── MetalogError           TermOver, NoSequencer (each also with unknown outcome), SlotNotInTerm
    └── LogBookError           Conflict, Trimmed, Lost, OutcomeUnknown, WriterForgotten, AnswerForgotten, NumberReused,
                              TooManyWriters

Errors cross processes by class name and facts (`to_wire`, `from_wire`); an unknown name arrives as `RemoteError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self

import msgspec

DECODE_FAULTS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises of JSON and MessagePack from outside: the last of values that are nested too deeply."""


class BokiError(Exception):
    """Root of all errors of Boki.

    Args:
        message: for a person: expected, found, what to do.
        facts: for a program; each becomes an attribute. Values are str, int, float, bool, bytes, None, or lists and
            mappings of these.
    """

    retryable: ClassVar[bool] = False
    definite: ClassVar[bool] = True

    def __init__(self, message: str, /, **facts: Any) -> None:
        super().__init__(message)
        self.facts: Mapping[str, Any] = facts

    def again(self) -> Self:
        """The same error for somebody else: an exception has one traceback, which grows wherever it is raised."""
        copy = type(self).__new__(type(self), *self.args)
        copy.__dict__.update(self.__dict__)
        if "__notes__" in copy.__dict__:
            copy.__dict__["__notes__"] = list(copy.__dict__["__notes__"])
        copy.__cause__, copy.__suppress_context__ = self.__cause__, self.__suppress_context__
        return copy

    def __getattr__(self, name: str) -> Any:
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(f"{type(self).__name__} has no fact {name!r}; it has {sorted(facts)}")


class UsageError(BokiError):
    """The caller asked for something that cannot be right."""


class InvalidArgument(UsageError, ValueError):
    """An argument is out of its range or of the wrong type."""


class RecordTooLarge(InvalidArgument):
    """A record, with its tags, is over the limit."""


class InvalidTag(InvalidArgument):
    """A tag is 2**64-1, not a u64, too long a name, or there are too many of them."""


class WindowFull(UsageError):
    """`submit` found the window of undecided records full; `await book.ready()` first."""

    retryable = True


class IteratorBusy(UsageError, RuntimeError):
    """Somebody else waits for the next item of this iterator: as with a generator, one at a time."""


class WrongLoop(UsageError, RuntimeError):
    """The object belongs to another event loop than the one that runs here, if one does: nothing was done."""


class WrongCluster(InvalidArgument):
    """A token, or an engine, is of another cluster."""


class ClosedError(UsageError):
    """The object was closed before the call."""


class SettingsError(UsageError):
    """Settings are wrong; the message lists every fault found."""


class ProtocolError(BokiError):
    """A peer sent bytes that cannot be right: length, count, checksum, opcode or order."""


class VersionMismatch(ProtocolError):
    """A frame, file or entry has a format version that this program does not read."""


class NetworkError(BokiError):
    """The network or the peer process failed."""

    retryable = True


class Unreachable(NetworkError):
    """No connection could be made: the request was not sent."""


class ConnectionLost(NetworkError):
    """The connection ended before the answer came: perhaps applied."""

    definite = False


class CallTimeout(NetworkError):
    """No answer in time: perhaps applied."""

    definite = False


class Overloaded(BokiError):
    """A bounded queue at the peer is full; nothing was applied."""

    retryable = True


class ThreadsExhausted(BokiError):
    """Every thread runs a function whose caller gave it up, and no more may begin; the new function has not begun."""

    retryable = True


class AccessError(BokiError):
    """The peer does not let this one do it; nothing was applied."""


class Unauthenticated(AccessError):
    """A cluster token is asked for, and none was shown, or one that is not valid; or it should be asked for, and is not."""


class NotPermitted(AccessError):
    """This connection may not say that: it is for peers of another role, or about what is not its own."""


class RemoteError(BokiError):
    """A peer answered with an error that this version does not know."""

    definite = False


class StorageError(BokiError):
    """A disk or a file of ours failed."""


class CorruptData(StorageError):
    """A file or entry does not match its checksum or its format, and not only at its torn tail."""


class DiskFull(StorageError):
    """No space is left."""

    retryable = True


class DiskFailed(StorageError):
    """The operating system answered a read or a write with an error."""

    definite = False


class WrongDirectory(StorageError):
    """A data directory is wiped, foreign, incomplete or read-only."""


class DirectoryInUse(StorageError):
    """Another process holds the data directory."""


class MetadataError(BokiError):
    """The metadata store refused or failed."""


class NoNode(MetadataError):
    """The path, or its parent, does not exist."""


class NodeExists(MetadataError):
    """The path exists already."""


class BadVersion(MetadataError):
    """A compare-and-swap met another version."""


class NotEmpty(MetadataError):
    """A path with children cannot be deleted."""


class MetadataUnavailable(MetadataError):
    """The store cannot be reached; the request was not sent."""

    retryable = True


class MetadataRefused(MetadataError):
    """The store does not let this process do it: its credential is missing or wrong."""


class MetadataUnknown(MetadataError):
    """The answer of a write was lost. Only a later version settles it (DESIGN §4 rule 4)."""

    retryable = True
    definite = False


class LedgerError(BokiError):
    """An operation on a ledger failed."""


class NoSuchLedger(LedgerError):
    """The metadata has no such ledger."""


class NoSuchEntry(LedgerError):
    """The entry certainly does not exist in the ledger."""


class EntryUnknown(LedgerError):
    """No copy could be read and its absence is not proven: bookies are down, or copies are corrupt."""

    retryable = True
    definite = False


class DigestMismatch(LedgerError):
    """Every copy that answered fails its digest."""


class LedgerFenced(LedgerError):
    """Someone else recovers or closed the ledger: what was not acknowledged has an unknown outcome."""

    definite = False


class LedgerClosed(LedgerError):
    """The ledger is closed; the entry was not added."""


class Unauthorized(LedgerError):
    """The ledger password is wrong."""


class NotEnoughBookies(LedgerError):
    """Fewer bookies are up than the ledger needs."""

    retryable = True


class LedgerDataMissing(LedgerError):
    """Recovery would close a ledger below what is known to have been acknowledged: nothing was closed."""


class RecoveryFailed(LedgerError):
    """Too many bookies gave no definite answer; the ledger stays in recovery, try again when they are back."""

    retryable = True


class MetalogError(BokiError):
    """Ordering failed."""


class TermOver(MetalogError):
    """The term named in the request has ended or is not served here: nothing was ordered."""

    retryable = True


class TermEndedMeanwhile(TermOver):
    """The term ended while the request was on its way into the metalog: perhaps ordered."""

    definite = False


class NoSequencer(MetalogError):
    """No sequencer serves the log now."""

    retryable = True


class OrderUnknown(NoSequencer):
    """No sequencer answered in time, and one that was asked may have ordered it; every command may be repeated."""

    definite = False


class SlotNotInTerm(MetalogError):
    """The term asked does not order the book's slot; read the view again for the one that does."""

    retryable = True


class LogBookError(BokiError):
    """An operation on a LogBook failed."""


class Conflict(LogBookError):
    """An expectation failed: the record joined no stream, and never will.

    Attributes:
        actual: {tag: seqnum of its newest record, or None} for the tags expected.
        position: seqnum up to which the session now sees; read to it before deciding anything.
    """


class Trimmed(LogBookError):
    """What was asked for lies below a trim mark.

    Attributes:
        mark: what was asked for below this seqnum is trimmed; read from there on. A read that ends below the stream's mark
            tells its own end. tag, book: of the stream.
    """


class Lost(LogBookError):
    """The record was declared lost, with evidence."""


class OutcomeUnknown(LogBookError):
    """The append was sent and may or may not have been ordered; resend under the same number to know."""

    retryable = True
    definite = False


class WriterForgotten(LogBookError):
    """The log dropped the writer while its appends were under way: perhaps applied, before it was forgotten. Never again from
    then on, whatever is still under way. Read the book to know.

    Attributes:
        writer: the session writer that is known no more. number: of the append.
    """

    definite = False


class AnswerForgotten(LogBookError):
    """The log has decided this number of the writer, too long ago to know how: at most its last 1,024 answers are kept.

    Attributes:
        number: of the append. book.
    """

    definite = False


class NumberReused(LogBookError):
    """The log has this number of the writer already, for another record: nothing was appended now.

    Attributes:
        number: of the append. book.
    """


class TooManyWriters(LogBookError):
    """The book has as many named writers as a book may have, and this would be one more: nothing was appended.

    Attributes:
        found: named writers of the book. book: its id.
    """


def _tree(root: type[BokiError]) -> dict[str, type[BokiError]]:
    found = {root.__name__: root}
    for child in root.__subclasses__():
        found.update(_tree(child))
    return found


def to_wire(error: BaseException) -> bytes:
    """Encodes an error for a peer: msgpack [class name, message, facts]."""
    facts = dict(error.facts) if isinstance(error, BokiError) else {}
    return msgspec.msgpack.encode([type(error).__name__, str(error), facts])


def from_wire(body: bytes | bytearray | memoryview) -> BokiError:
    """Decode an error of a peer; a class this version does not know becomes `RemoteError`.

    Never raises, whatever the bytes are: the constructor of a subclass, which may ask for more than a message, is not run.
    """
    try:
        name, message, facts = msgspec.msgpack.decode(body, type=tuple[str, str, dict[str, Any]], strict=True)
    except DECODE_FAULTS as fault:
        return ProtocolError(f"expected an encoded error, found {len(body)} bytes that are none: {fault}")
    kind = _tree(BokiError).get(name)
    if kind is None:
        return RemoteError(f"the peer answered {name}: {message}", **{**facts, "kind": name})
    error = kind.__new__(kind, message)
    BokiError.__init__(error, message, **facts)
    return error
