"""Errors of planning and reading logs: each message begins with a stable code in brackets, for Spark hands on nothing but text."""

from __future__ import annotations

from boki_spark.errors import PipelineError


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
