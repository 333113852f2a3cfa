"""How the cluster is, in one value: what `/v1/status` answers and the status page draws. Pure.

The gateway knows engines only through the SDK, which says nothing of sequencers, bookies or the view. So whoever starts the
gateway fills this port (`ClusterFacts`); how it asks them is its own affair. A part that does not answer is in the state
all the same, with the reason.
"""

from __future__ import annotations

from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from boki_gateway.calls.bodies import Seqnum


class Part(msgspec.Struct, kw_only=True):
    """What there is to say of every part."""

    name: Annotated[str, Meta(description="Its incarnation or id.")]
    address: str
    up: Annotated[bool, Meta(description="Whether it answered.")]
    problem: Annotated[str, Meta(description="Why it is not up, or what ails it; empty: nothing.")] = ""


class EngineLog(msgspec.Struct, kw_only=True):
    """How far an engine has indexed one log."""

    log: int
    term: int
    position: Annotated[int, Meta(description="Positions of the term that are indexed.")]
    seqnum: Seqnum | None = None
    lag_entries: Annotated[int | None, Meta(description="Metalog entries it has not indexed; null: not known.")] = None


class EngineState(Part, kw_only=True):
    """One engine."""

    ready: bool = False
    logs: list[EngineLog] = []
    records: Annotated[int, Meta(description="Records decided, losers included.")] = 0
    books: int = 0
    lag_entries: Annotated[int | None, Meta(description="Of all its logs together; null: not known.")] = None
    index_bytes: int = 0
    cache_bytes: int = 0
    connections: int = 0
    ack_counts: Annotated[
        list[int],
        Meta(
            description="How many entries reached their ack quorum within each of 50, 100, 200, 500 µs, 1, 2, 5, … 500 ms, "
            "1, 2, 5 s, and later; empty: not known."
        ),
    ] = []


class SequencerState(Part, kw_only=True):
    """One sequencer: it serves a log, or stands by."""

    log: Annotated[int | None, Meta(description="The log that it serves or stands by for; null: any.")] = None
    term: Annotated[int | None, Meta(description="The term that it serves; null: it stands by.")] = None
    entries: int = 0
    end_position: int = 0
    shards: int = 0
    subscribers: int = 0


class BookieState(Part, kw_only=True):
    """One bookie."""

    read_only: bool = False
    free_bytes: Annotated[int | None, Meta(description="Free on its disks; null: it did not say.")] = None
    total_bytes: Annotated[int | None, Meta(description="Free, and what it holds; null: it did not say.")] = None


class ControllerState(Part, kw_only=True):
    """One member of the controller group."""

    leader: bool = False


class LogState(msgspec.Struct):
    """One physical log of the view."""

    log: int
    slots: Annotated[int, Meta(description="How many of the 1,024 slots it has.")]
    term: Annotated[int | None, Meta(description="null: no term was begun yet, or it has ended for good.")] = None
    metalog_ledger: int | None = None
    sequencer: Annotated[str, Meta(description="Incarnation of the sequencer of the term.")] = ""


class SlotRange(msgspec.Struct):
    """Slots `first` to `last`, both included, belong to `log`."""

    first: int
    last: int
    log: int


class ClusterState(msgspec.Struct, kw_only=True):
    """All parts that are known."""

    engines: list[EngineState] = []
    sequencers: list[SequencerState] = []
    bookies: list[BookieState] = []
    controllers: list[ControllerState] = []
    logs: list[LogState] = []
    slots: list[SlotRange] = []
    problem: Annotated[str, Meta(description="Why parts may be missing here; empty: none are.")] = ""
    faults: Annotated[
        list[str], Meta(description="What is not as it should be, a sentence each, as `boki status --check` has it.")
    ] = []

    @property
    def records(self) -> int | None:
        """Records decided, by the engine that is furthest; None when none answers."""
        return max((engine.records for engine in self.engines if engine.up), default=None)

    @property
    def entries(self) -> dict[tuple[int, int], int]:
        """(log, term) → metalog entries of the terms that are served."""
        return {
            (one.log, one.term): one.entries
            for one in self.sequencers
            if one.up and one.log is not None and one.term is not None
        }

    @property
    def acks(self) -> dict[str, list[int]]:
        """Engine → how long its entries took, since it began."""
        return {engine.name: engine.ack_counts for engine in self.engines if engine.up and engine.ack_counts}

    @property
    def lag_entries(self) -> int | None:
        """The lag of the engine that is furthest behind."""
        return max((one.lag_entries for one in self.engines if one.up and one.lag_entries is not None), default=None)


class ClusterFacts(Protocol):
    """From which the gateway gets the state of the cluster."""

    async def collect(self) -> ClusterState:
        """Asks all parts. Raises BokiError when it cannot even ask."""
