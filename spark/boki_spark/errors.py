"""Errors of the data pipeline. Each message begins with a code in brackets, because Spark passes on only the text of an error.

A code is stable: programs and people search for it. The text after it says what was expected, what was found and what to do.

`coded` gives a code to errors of the layers below as well:

    with coded():
        ...         # code of a reader or a sink that Spark calls

Such an error becomes the pipeline's error for what it means to a job, and is kept as its cause. This module does no IO.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from boki_common import errors
from boki_common.errors import BokiError, InvalidArgument


class PipelineError(BokiError):
    """The root of the errors of the data pipeline."""

    code: ClassVar[str] = "BOKI_PIPELINE"

    def __init__(self, message: str, **facts: Any) -> None:
        """Put the code before a message. A message that begins with it is kept, since an error that is rebuilt from its text has it."""
        begin = f"[{self.code}] "
        super().__init__(message if message.startswith(begin) else begin + message, **facts)


class BadOption(PipelineError, InvalidArgument):
    """An option is unknown, or its value is not allowed."""

    code = "BOKI_BAD_OPTION"


class BadSchema(PipelineError, InvalidArgument):
    """A frame or a requested schema has columns that do not fit."""

    code = "BOKI_BAD_SCHEMA"


class SinkBadRow(PipelineError, InvalidArgument):
    """A row of a frame cannot become a record."""

    code = "BOKI_SINK_BAD_ROW"


class SinkStale(PipelineError):
    """A task belongs to a batch that a later one has replaced."""

    code = "BOKI_SINK_STALE"


class SinkFenced(PipelineError):
    """Another attempt of the same partition began and writes the rest. Spark retries the task if it is needed."""

    code = "BOKI_SINK_FENCED"
    retryable = True


class SinkReplayDiffers(PipelineError):
    """A batch that was run again has other rows or partitions than before: the frame is not deterministic."""

    code = "BOKI_SINK_REPLAY_DIFFERS"


class SinkTrimmed(PipelineError):
    """The sink's records of a query's progress were trimmed, so it cannot tell which rows were written."""

    code = "BOKI_SINK_TRIMMED"


class SinkUnknown(PipelineError):
    """The outcome of an append is unknown. The next attempt finds out."""

    code = "BOKI_OUTCOME_UNKNOWN"
    retryable = True
    definite = False


# -- of planning and reading


class ReadFault(PipelineError):
    """The root of the errors of planning and reading."""

    code = "BOKI_READ"


class BadOffset(ReadFault):
    """A value is not a valid offset: the program that made it is at fault."""

    code = "BOKI_BAD_OFFSET"


class Behind(ReadFault):
    """The engine or index snapshot that plans has not reached the requested position yet. Retry."""

    code = "BOKI_BEHIND"
    retryable = True


class DataLoss(ReadFault):
    """Ordered records cannot be read any more, or differ from what was ordered. The caller is not at fault."""

    code = "BOKI_DATA_LOSS"


class Gone(ReadFault):
    """All records of a term are dead, and its location is forgotten."""

    code = "BOKI_TRIMMED"


class PlanStale(ReadFault):
    """Entries of the plan were reclaimed after it was made, because all their records died. Make a new plan."""

    code = "BOKI_PLAN_STALE"
    retryable = True


class ClusterAway(ReadFault):
    """Engines, bookies, the metadata store or a file system did not answer in time."""

    code = "BOKI_UNREACHABLE"
    retryable = True


class NotAdmitted(ReadFault):
    """The cluster or its metadata store refuses the caller: the token is missing or wrong."""

    code = "BOKI_ACCESS"


class ColdDamaged(ReadFault):
    """A file of an offloaded term is not what its manifest says."""

    code = "BOKI_COLD_DAMAGED"


class ColdMissing(ReadFault):
    """A file of an offloaded term does not exist."""

    code = "BOKI_COLD_MISSING"


class NotOffloaded(ReadFault):
    """Some of the requested records are in ledgers only."""

    code = "BOKI_NOT_OFFLOADED"


class OffloadRefused(ReadFault):
    """A term cannot be offloaded in its present state; the message gives the reason."""

    code = "BOKI_OFFLOAD_REFUSED"


# -- codes for the errors of the layers below

CODED: Final[tuple[tuple[tuple[type[BokiError], ...], type[PipelineError]], ...]] = (
    ((errors.AccessError, errors.WrongCluster, errors.Unauthorized, errors.MetadataRefused), NotAdmitted),
    ((errors.UsageError,), BadOption),
    ((errors.OutcomeUnknown, errors.AnswerForgotten), SinkUnknown),
    (
        (
            errors.NetworkError,
            errors.Overloaded,
            errors.MetadataError,
            errors.NotEnoughBookies,
            errors.NoSequencer,
            errors.EntryUnknown,
        ),
        ClusterAway,
    ),
    ((errors.Trimmed,), Gone),
    (
        (
            errors.StorageError,
            errors.ProtocolError,
            errors.Lost,
            errors.NoSuchLedger,
            errors.NoSuchEntry,
            errors.DigestMismatch,
            errors.LedgerDataMissing,
        ),
        DataLoss,
    ),
)
"""Errors of the layers below, and the pipeline's error for each. The first match counts."""


def with_code(error: BokiError) -> PipelineError:
    """Return the pipeline's error for an error. An error that has a code is returned as it is."""
    if isinstance(error, PipelineError):
        return error
    means = next((means for kinds, means in CODED if isinstance(error, kinds)), PipelineError)
    if means is PipelineError and not error.definite:
        means = SinkUnknown
    return means(f"{type(error).__name__}: {error}")


@contextmanager
def coded() -> Iterator[None]:
    """Give a code to every `BokiError` that is raised in a block.

    Raises:
        PipelineError: the error of the block, or the pipeline's error for it.
    """
    try:
        yield
    except PipelineError:
        raise
    except BokiError as error:
        raise with_code(error) from error
