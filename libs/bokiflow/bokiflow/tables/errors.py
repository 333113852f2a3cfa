"""What tables raise beside the errors of the SDK and of `bokilib`.

BokiError
├── UsageError      TableRefused
└── LogBookError    TableUnavailable, WriteUnknown (perhaps applied), RowsMoved (a Conflict), ForeignWrite, TableBehind,
                    VersionsGone, WrittenUnlocked, NotHeld
"""

from __future__ import annotations

from boki_common.errors import Conflict, LogBookError, UsageError


class TableRefused(UsageError):
    """A table is not what it has to be for this: its mode, its columns, or whose it is. Nothing was written.

    Attributes:
        table. expected, found.
    """


class TableUnavailable(LogBookError):
    """The database does not answer, or not enough of it: what was asked for did not happen.

    Attributes:
        table.
    """

    retryable = True


class WriteUnknown(LogBookError):
    """The database was asked to write, and nobody knows whether it did.

    Attributes:
        table.
    """

    retryable = True
    definite = False


class RowsMoved(Conflict):
    """What a transaction wants to read next is newer than what it read before, which has changed meanwhile: it has to be run again."""

    retryable = True


class ForeignWrite(LogBookError):
    """A row has a cell that the log knows nothing of: somebody wrote it past the log, with a time stamp of his own.

    Attributes:
        table, key, column. expected: the newest time stamp that there may be. found.
    """


class TableBehind(LogBookError):
    """A row lacks what the log has given up already: the table was emptied, or brought back from an older backup.

    Attributes:
        table, key.
    """


class VersionsGone(LogBookError):
    """Somebody looks at a row as of a place of which the versions are collected: `Tables.collect` did not name its group.

    Attributes:
        table. expected: places that can be looked at begin here. found.
    """


class WrittenUnlocked(LogBookError):
    """A row that a transaction has locked was changed by somebody who takes no locks. Nothing was written; it may be run again.

    Attributes:
        table, key.
    """


class NotHeld(LogBookError):
    """Somebody else runs this workflow by now, or its worker has another `Log` than its tables: nothing is written for it here."""
