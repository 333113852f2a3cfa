"""Errors of reliable state machines, beside those of the SDK and of `bokilib`.

BokiError
├── UsageError      DeclarationError, UndeclaredField, UnhandledEvent, HandlerAwaited, EndlessHandler, WrongCall, CommitTooLarge
└── LogBookError    Refused, DeliveryFailed, MachineFaulted, AnswerTimeout, IdReused, InboxFull, NoSuchMachine, UnexpectedAnswer
"""

from __future__ import annotations

from boki_common.errors import InvalidArgument, LogBookError, UsageError


class DeclarationError(InvalidArgument, TypeError):
    """The class of a machine or of an event cannot work as it is written. Raised when the class is created."""


class UndeclaredField(UsageError, AttributeError):
    """A handler assigned an attribute that its machine does not declare, so that the value would be lost after the handler.

    Attributes:
        machine: the class of the machine.
        field: the attribute.
    """


class UnhandledEvent(UsageError):
    """A machine got an event for which its state has no handler, and which it neither defers nor ignores there.

    Attributes:
        machine: the class of the machine.
        state: the state that it was in.
        event: the name of the event.
    """


class HandlerAwaited(UsageError):
    """An `async` handler waited for something outside of its machine. A handler computes; a program outside of it does IO."""


class EndlessHandler(UsageError):
    """A handler, its jumps and its `first` events did not come to an end.

    Attributes:
        expected: the most jumps and `first` events of one handler.
    """


class WrongCall(UsageError):
    """A method of a machine was called outside of a handler, or with an argument that it cannot take."""


class CommitTooLarge(InvalidArgument):
    """A handler changed and sent more than one record can take. Do less at once: `first` and timers continue in the next handler.

    Attributes:
        expected: the most bytes of one handler, or the most partitions and asking processes together.
        found: those of this one.
    """


class DeliveryFailed(LogBookError):
    """A plugin did not deliver outputs: it raised an error, which is the cause, or did not end in time. Hosts log it, and try again."""

    definite = False


class Refused(LogBookError):
    """A machine refused a question: it handled the question, changed nothing, and answered with this error.

    A handler of an `Ask` raises it, and the caller of `ask` gets it.
    """


class MachineFaulted(LogBookError):
    """A handler of the machine failed, so the machine handles nothing until it is resumed or the event is skipped.

    The question is not lost: it may be handled after the machine is resumed.

    Attributes:
        machine: the machine, as text.
        error: the type and message of the handler's error.
    """

    definite = False


class AnswerTimeout(LogBookError, TimeoutError):
    """A machine did not answer in time. The question is not taken back: it may have been handled, or be handled later.

    Attributes:
        machine: the machine, as text.
        question: the name of the question's class.
        seconds: the time that `ask` waited.
    """

    definite = False


class UnexpectedAnswer(LogBookError):
    """The machine handled the question, and its answer has another type than this program expects.

    The programs differ in the type of the question. Asking again has the machine handle the question again.

    Attributes:
        question: the name of the question's class.
        found: the reason for which the answer cannot be decoded.
    """

    definite = False


class IdReused(LogBookError):
    """A machine with this key exists, and was created with another class or another first event.

    Attributes:
        key: of the machine.
        expected: the class and digest of this call.
        found: those of the machine.
    """


class InboxFull(LogBookError):
    """The host of a machine reads no further in its partition, because too many events wait there. Nothing was sent.

    The machines of the partition are slower than what is sent to them, or one of them has a fault or defers what comes. The same call may
    succeed later.

    Attributes:
        machine: the machine, as text.
        host: the host that reads no further.
    """

    retryable = True


class NoSuchMachine(LogBookError):
    """No machine of this name exists, it has halted, or it has no fault that could be decided.

    Attributes:
        machine: the machine, as text.
    """
