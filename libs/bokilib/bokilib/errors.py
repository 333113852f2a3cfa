"""What libraries raise beside the errors of the SDK. All are under `BokiError`, and say what the caller may do.

BokiError
├── UsageError      AtomicTooLarge, NotEncodable
└── LogBookError    Fenced, ForeignRecord, UnknownEvent, NoPayloadHook, AppendUnknown (perhaps applied)
"""

from __future__ import annotations

from typing import Any, Protocol

from boki_common.errors import InvalidArgument, LogBookError, OutcomeUnknown, UsageError


class HasOutcome(Protocol):
    """An append whose outcome can be asked later."""

    async def outcome(self, *, settle: bool = False) -> Any: ...


class AtomicTooLarge(InvalidArgument):
    """What shall commit together does not fit one record: tags, expectations or bytes. Nothing was sent.

    Attributes:
        found, expected: of what there is too much.
    """


class NotEncodable(UsageError, TypeError):
    """A value is nothing that JSON can say, or its type does not fit what was stored."""


class Fenced(LogBookError):
    """Somebody else has claimed what this process held: nothing was appended, and nothing under this claim ever will be.

    Attributes:
        tag: of the fence. claim: seqnum of the claim that is over.
    """


class ForeignRecord(LogBookError):
    """A stream of a library has a record that no library wrote, or one that is damaged.

    Attributes:
        seqnum: of the record.
    """


class UnknownEvent(LogBookError):
    """A record says what this version does not know: upgrade the program that reads it.

    Attributes:
        seqnum: of the record. found: the version or the kind of event.
    """


class NoPayloadHook(LogBookError):
    """A record was written through a payload hook that this program was not given.

    Attributes:
        seqnum: of the record. expected: the hook's name. found: the name of the one that is there, or None.
    """


class AppendUnknown(OutcomeUnknown):
    """The append was sent, and may or may not be in the log. Never append it again: ask `outcome()`.

    Attributes:
        ticket: of the record.
    """

    def __init__(self, message: str, ticket: HasOutcome, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.ticket = ticket

    async def outcome(self, *, settle: bool = True) -> Any:
        """What became of it, as `boki.Ticket.outcome`: `Committed`, `Conflict` or `Never`, and then it is final.

        Args:
            settle: False: if it is not in the log, it is sent again, and applied.
        """
        return await self.ticket.outcome(settle=settle)
