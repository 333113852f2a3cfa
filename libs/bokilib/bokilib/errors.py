"""Errors of the libraries beside those of the SDK. All descend from `BokiError`, and their messages say what the caller may do.

BokiError
├── UsageError      AtomicTooLarge, NotEncodable, WrongBook
└── LogBookError    Fenced, ForeignRecord, UnknownEvent, NoPayloadHook, PayloadHookFailed, PayloadHookUnavailable,
                    AppendUnknown (perhaps applied), PartlyApplied (applied in part)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from boki_common.errors import BokiError, Conflict, InvalidArgument, LogBookError, OutcomeUnknown, UsageError


class HasOutcome(Protocol):
    """An append whose outcome can be queried later."""

    async def outcome(self, *, settle: bool = False) -> Any: ...


class AtomicTooLarge(InvalidArgument):
    """The contributions to one record have too many tags, expectations or bytes. Nothing was sent.

    Attributes:
        what: "tags", "expectations" or "bytes".
        found: their number.
        expected: the most that a record takes.
    """


class NotEncodable(UsageError, TypeError):
    """A value cannot be represented in JSON, or stored JSON does not fit the type it is decoded as."""


class WrongBook(InvalidArgument):
    """A part of a record, or a store, is of another book than the record: one record is in one book. Nothing was sent.

    Attributes:
        expected: the book of the record.
        found: the book of the part or store.
    """


class Fenced(LogBookError):
    """Another holder has claimed the fence: nothing was appended, and no append under the lost claim can succeed.

    Attributes:
        tag: of the fence.
        claim: the seqnum of the lost claim, or of the other holder's claim where this process had none.
    """


class ForeignRecord(LogBookError):
    """A stream of a library has a record that no library wrote, or a damaged one.

    Attributes:
        seqnum: of the record.
        damaged: True if a library wrote the record, and its events cannot be decoded; absent if no library wrote it.
    """


class UnknownEvent(LogBookError):
    """A record has a version or a kind of event that this program does not know: upgrade the program.

    Attributes:
        seqnum: of the record.
        found: the unknown version or kind of event.
    """


class NoPayloadHook(LogBookError):
    """A record was written through a payload hook that this program was not given.

    Attributes:
        seqnum: of the record.
        expected: the name of the hook that wrote it.
        found: the name of this program's hook, or None.
    """


class PayloadHookFailed(LogBookError):
    """A payload hook raised an error that is not Boki's, which is the cause. Nothing was sent.

    Attributes:
        hook: its name.
        seqnum: of the record that it could not open; absent where it could not seal one.
    """

    definite = True


class PayloadHookUnavailable(LogBookError):
    """A payload hook raised an OSError, such as ConnectionError or TimeoutError, which is the cause: the same call may succeed later.

    Attributes:
        hook, seqnum: as of `PayloadHookFailed`.
    """

    retryable = True
    definite = True


class AppendUnknown(OutcomeUnknown):
    """The append was sent, and its record may or may not be in the log. Do not append it again: call `outcome`.

    Attributes:
        ticket: of the record.
    """

    def __init__(self, message: str, ticket: HasOutcome, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.ticket = ticket

    async def outcome(self, *, settle: bool = True) -> Any:
        """Return the final outcome of the append, as `boki.Ticket.outcome` does: `Committed`, `Conflict` or `Never`.

        Args:
            settle: True decides the append: if it is not in the log now, it never will be. False sends it again in that case.
        """
        return await self.ticket.outcome(settle=settle)


class PartlyApplied(LogBookError):
    """An operation that takes several appends or reads failed after its first append. The same call again continues it.

    `__cause__` is the error that stopped it, which says only what happened to the last part.
    """

    retryable = True
    definite = False


@contextmanager
def partly_applied(done: str) -> Iterator[None]:
    """Turn an error that claims that nothing was applied into PartlyApplied, where a part of the operation is in the log.

    A Conflict passes: the operation reads what changed and is tried again.

    Args:
        done: what is in the log, and what calling again does.
    """
    try:
        yield
    except BokiError as error:
        if isinstance(error, Conflict) or not error.definite:
            raise
        raise PartlyApplied(f"{done}: {error}") from error
