"""A code for every error of Boki that leaves the data pipeline: Spark hands on nothing but text. No loop, no IO.

    with coded():
        ...         # whatever a reader or a sink does where Spark calls it

Errors of the pipeline have their codes. Those of what it stands on get the code of what they mean to who runs a job; the error itself is
the cause.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from boki_common import errors
from boki_common.errors import BokiError
from boki_spark.errors import BadOption, PipelineError, SinkUnknown
from boki_spark.faults import ClusterAway, DataLoss, Gone, NotAdmitted

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
