"""Errors that a store raises beside those of the SDK and of `bokilib`."""

from __future__ import annotations

from boki_common.errors import LogBookError, UsageError


class OperationFailed(LogBookError):
    """An operation changed nothing: the value at its path does not allow it.

    Attributes:
        object: the object's name.
        path: the path of the operation.
        operation: its kind, "inc" for example.
        reason: why it was not possible.
    """


class AlreadyExists(LogBookError):
    """A collection already contains the id that was to be created.

    Attributes:
        collection: the collection's name.
        id: the id.
    """


class NoSuchObject(LogBookError):
    """The object that was to be changed does not exist.

    Attributes:
        object: its name.
    """


class HistoryMissing(LogBookError):
    """Records of an object are trimmed and no checkpoint contains them, so its state cannot be known.

    Attributes:
        object: its name.
        mark: records below this seqnum are trimmed.
    """


class InTransaction(UsageError):
    """A transaction was used after it ended, or for something that a transaction does not allow."""


class ResultUnknown(LogBookError):
    """The operation is in the log, but its result cannot be computed: the records before it are trimmed, or could not be read.

    `__cause__` is the error of the read. Repeating the operation would apply it twice.

    Attributes:
        object: the object's name.
        seqnum: the operation's place in the log.
    """

    definite = False


class TransactionTimeout(LogBookError):
    """The body of a transaction ran for too long. It was cancelled, and none of its writes is in the log.

    Attributes:
        body: the body's name.
        ran_s: for how many seconds it ran.
        expected: for how many seconds it may run.
    """
