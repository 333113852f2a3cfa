"""Errors of the data pipeline: each message begins with a code in brackets, because Spark hands on nothing but text.

A code is stable: programs and people look for it. The text behind it says what was expected and found, and what to do.
"""

from __future__ import annotations

from typing import Any, ClassVar

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
