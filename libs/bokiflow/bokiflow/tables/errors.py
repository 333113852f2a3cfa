"""Errors of tables, beside those of the SDK and of `bokilib`.

BokiError
├── UsageError      TableRefused
└── LogBookError    TableUnavailable, WriteUnknown (perhaps applied), RowsMoved (a Conflict), ForeignWrite, TableBehind,
                    VersionsGone, WrittenUnlocked, NotHeld
"""

from __future__ import annotations

from boki_common.errors import Conflict, LogBookError, UsageError


class TableRefused(UsageError):
    """A table has the wrong mode or columns for this call, or belongs to another book. Nothing was written.

    Attributes:
        table: the table.
        expected: the mode, column or owner that the call needs.
        found: the mode, column or owner that the table has.
    """


class TableUnavailable(LogBookError):
    """The database does not answer, or too few of its nodes do. The call had no effect.

    Attributes:
        table: the table.
    """

    retryable = True


class WriteUnknown(LogBookError):
    """A write to the database may or may not be done.

    Attributes:
        table: the table.
    """

    retryable = True
    definite = False


class RowsMoved(Conflict):
    """A row that a transaction has read changed before its next read: the rows would not be of one place. Run it again."""

    retryable = True


class ForeignWrite(LogBookError):
    """A row has a cell with a time stamp of no record: another program wrote it without the log.

    Attributes:
        table: the table.
        key: the key of the row.
        column: the column of the cell.
        expected: the highest time stamp that the row may have.
        found: the time stamp of the cell.
    """


class TableBehind(LogBookError):
    """A row lacks changes that the log has trimmed: the table was emptied, or restored from an older backup.

    Attributes:
        table: the table.
        key: the key of the row.
    """


class VersionsGone(LogBookError):
    """A row was read as of a place whose versions are deleted: `Tables.collect` was called without the reader's group.

    Attributes:
        table: the table.
        expected: the oldest place that can be read.
        found: the place that was read.
    """


class WrittenUnlocked(LogBookError):
    """A row that a transaction has locked was changed by a writer without locks. Nothing was written; the transaction may run again.

    Attributes:
        table: the table.
        key: the key of the row.
    """


class NotHeld(LogBookError):
    """The workflow ended or another worker runs it now, or its worker and its tables have different `Log`s. Nothing was written."""
