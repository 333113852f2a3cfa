"""Errors of the data pipeline: each message begins with a code in brackets, because Spark hands on nothing but text.

A code is stable: programs and people look for it. The text behind it says what was expected and found, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from boki_common import errors
from boki_common.errors import BokiError, InvalidArgument


class PipelineError(BokiError):
    """Root of the errors of the data pipeline."""

    code: ClassVar[str] = "BOKI_PIPELINE"

    def __init__(self, message: str, **facts: Any) -> None:
        """A message that begins with the code is kept as it is: an error that is raised again elsewhere is made of its own text."""
        begin = f"[{self.code}] "
        super().__init__(message if message.startswith(begin) else begin + message, **facts)


class BadOption(PipelineError, InvalidArgument):
    """An option has no such name, or no such value."""

    code = "BOKI_BAD_OPTION"


class BadSchema(PipelineError, InvalidArgument):
    """A frame, or a schema that was asked for, has columns that do not fit."""

    code = "BOKI_BAD_SCHEMA"


class SinkBadRow(PipelineError, InvalidArgument):
    """A row of a frame can be no record."""

    code = "BOKI_SINK_BAD_ROW"


class SinkStale(PipelineError):
    """A task of a batch that is over: a later one has begun."""

    code = "BOKI_SINK_STALE"


class SinkFenced(PipelineError):
    """Another attempt of the same partition began: it writes the rest. Spark runs the task again, if it is needed."""

    code = "BOKI_SINK_FENCED"
    retryable = True


class SinkReplayDiffers(PipelineError):
    """A batch that was run again has other rows than before, or others in a partition: the frame is not deterministic."""

    code = "BOKI_SINK_REPLAY_DIFFERS"


class SinkTrimmed(PipelineError):
    """The record of how far the query had come was trimmed: whether rows are there already, nobody can know."""

    code = "BOKI_SINK_TRIMMED"


class SinkUnknown(PipelineError):
    """What was sent had no answer: it may be there, or not. The attempt that comes next finds out."""

    code = "BOKI_OUTCOME_UNKNOWN"
    retryable = True
    definite = False


# -- of planning and reading


class ReadFault(PipelineError):
    """What cannot be planned or read."""

    code = "BOKI_READ"


class BadOffset(ReadFault):
    """What is given as an offset is none: its maker's fault."""

    code = "BOKI_BAD_OFFSET"


class Behind(ReadFault):
    """The state that would plan has not come so far yet: an engine that lags, or a snapshot. Ask again."""

    code = "BOKI_BEHIND"
    retryable = True


class DataLoss(ReadFault):
    """Records that were ordered cannot be had any more, or are not what they were: nobody who asks is at fault."""

    code = "BOKI_DATA_LOSS"


class Gone(ReadFault):
    """All records of a term died, and where they lay is forgotten."""

    code = "BOKI_TRIMMED"


class PlanStale(ReadFault):
    """What the plan names was reclaimed since: its records are all dead now. Plan anew."""

    code = "BOKI_PLAN_STALE"
    retryable = True


class ClusterAway(ReadFault):
    """Engines, bookies or the metadata store did not answer in time."""

    code = "BOKI_UNREACHABLE"
    retryable = True


class NotAdmitted(ReadFault):
    """The cluster, or its metadata store, does not admit who asks: another token, or none."""

    code = "BOKI_ACCESS"


class ColdDamaged(ReadFault):
    """A file of an offloaded term is not what its manifest says."""

    code = "BOKI_COLD_DAMAGED"


class ColdMissing(ReadFault):
    """A file of an offloaded term is not there."""

    code = "BOKI_COLD_MISSING"


class NotOffloaded(ReadFault):
    """Records of what was asked for are in ledgers only."""

    code = "BOKI_NOT_OFFLOADED"


class OffloadRefused(ReadFault):
    """A term cannot be offloaded as it is now; the message says why."""

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
"""Errors of what the pipeline stands on, and what they are to a job; the first that fits."""


def with_code(error: BokiError) -> PipelineError:
    """An error as one whose message begins with a code; one that has a code is given back."""
    if isinstance(error, PipelineError):
        return error
    means = next((means for kinds, means in CODED if isinstance(error, kinds)), PipelineError)
    if means is PipelineError and not error.definite:
        means = SinkUnknown
    return means(f"{type(error).__name__}: {error}")


@contextmanager
def coded() -> Iterator[None]:
    """What is raised inside has a code. Raises PipelineError."""
    try:
        yield
    except PipelineError:
        raise
    except BokiError as error:
        raise with_code(error) from error
