"""What is known of a cluster's parts, and what that says about logs and engines. Pure: values, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from boki_common import ids


class Part(msgspec.Struct):
    """One process, or role of a process."""

    role: str
    address: str
    up: bool
    name: str = ""
    problem: str = ""
    """Why it is not up."""
    status: dict[str, Any] = {}
    """What it says of itself."""
    asked_ms: int = 0
    """When it was asked for that, by this machine's clock."""
    received_ms: int = 0
    """When it had answered; 0: it did not."""


class LedgerCopies(msgspec.Struct, frozen=True):
    """A ledger that is written now, and where its copies go."""

    ledger_id: int
    what: str
    """What it is to people: the metalog of log 0, the shard of an engine."""
    log: int
    wanted: int
    """Copies that whoever made it asks for; 0: not known."""
    bookies: list[str]
    problem: str = ""
    """Why that is not known."""


class ClusterStatus(msgspec.Struct):
    """All parts that are known, by role."""

    engines: list[Part] = []
    sequencers: list[Part] = []
    bookies: list[Part] = []
    view: dict[str, Any] | None = None
    """Terms by log and slots, of the metadata store; None without one."""
    controllers: list[Part] = []
    ledgers: list[LedgerCopies] = []
    """Those that are written now."""

    @property
    def parts(self) -> list[Part]:
        return [*self.engines, *self.sequencers, *self.controllers, *self.bookies]

    @property
    def repair(self) -> Mapping[str, Any]:
        """Missing copies and drains, as the leading controller reports them; empty if none leads, or before its first audit."""
        for part in self.controllers:
            found: Mapping[str, Any] = (part.status.get("duties") or {}).get("repair") or {}
            if part.up and part.status.get("leading") and found.get("audit"):
                return found
        return {}

    @property
    def anything_up(self) -> bool:
        return any(part.up for part in self.parts)


def is_served(installed: Mapping[str, Any], sequencers: Sequence[Part]) -> bool:
    """Whether the sequencer that the view names for a log says that it serves the term."""
    return any(
        part.up
        and part.name == installed["sequencer"]
        and (part.status.get("term") or {}).get("term") == installed["term"]
        for part in sequencers
    )


class LogPlace(NamedTuple):
    """How far an engine is in one log."""

    log: int
    term: int
    """The newest one that it knows; 0: none."""
    end_pos: int
    """Positions of that term that it has indexed; a sequencer's `end_pos` is as many, when nothing lags."""
    seqnum: int
    """Up to which the log is indexed, perhaps in an earlier term; 0: nothing is."""
    lag_entries: int | None
    """Metalog entries of that term that it has not indexed; None: not known."""
    shard: dict[str, Any] | None


def places_of(engine: Part, sequencers: Sequence[Part]) -> list[LogPlace]:
    """How far an engine is in each of its logs. One of an earlier version speaks of one log only."""
    status = engine.status
    logs = status.get("logs") or ([status] if "term" in status else [])
    return [_place(one, sequencers) for one in logs]


def _place(status: dict[str, Any], sequencers: Sequence[Part]) -> LogPlace:
    seqnum = int(status.get("seqnum") or 0)
    term = int(status.get("term") or 0)
    end_pos = ids.pos_of(seqnum) + 1 if seqnum and ids.term_of(seqnum) == term else 0
    lag = _lag(status, term, sequencers)
    return LogPlace(int(status.get("log") or 0), term, end_pos, seqnum, lag, status.get("shard"))


def _lag(status: dict[str, Any], term: int, sequencers: Sequence[Part]) -> int | None:
    """Entries of the term that its sequencer has and the engine has not indexed; else what the engine knows itself."""
    for sequencer in sequencers:
        serving = sequencer.status.get("term") or {}
        if term and serving.get("term") == term:
            position = status.get("position") or {}
            indexed = int(position.get("indexed_entry") or 0) if position.get("indexed_term", term) == term else 0
            return max(0, int(serving["entries"]) - indexed)
    lag = status.get("lag_entries")
    return None if lag is None else int(lag)


def lag_entries(engine: Part, sequencers: Sequence[Part]) -> int | None:
    """The lags of all logs of an engine together; None: one is not known."""
    lags = [place.lag_entries for place in places_of(engine, sequencers)]
    return None if None in lags or not lags else sum(lag or 0 for lag in lags)
