"""What a store raises beside the errors of the SDK and of `bokilib`."""

from __future__ import annotations

from boki_common.errors import LogBookError, UsageError


class OperationFailed(LogBookError):
    """An operation changed nothing: what is at its path does not allow it.

    Attributes:
        object, path, operation, reason.
    """


class AlreadyExists(LogBookError):
    """What was to be created in a collection is there already.

    Attributes:
        collection, id.
    """


class NoSuchObject(LogBookError):
    """What was to be changed is not there.

    Attributes:
        object: its name.
    """


class HistoryMissing(LogBookError):
    """Records of an object are trimmed that no checkpoint has: its state cannot be known.

    Attributes:
        object: its name. mark: records below are trimmed.
    """


class InTransaction(UsageError):
    """A transaction was used after it ended, or for what cannot be done in one."""


class ResultUnknown(LogBookError):
    """The operation is in the log, and its result is not known any more: what was before it is trimmed.

    Attributes:
        object. seqnum: of the operation.
    """

    definite = False


class TransactionTimeout(LogBookError):
    """The body of a transaction ran for longer than a transaction may. It was cancelled, and nothing of it is in the log.

    Attributes:
        body: its name. ran_s: for how many seconds it ran. expected: how many it may.
    """
