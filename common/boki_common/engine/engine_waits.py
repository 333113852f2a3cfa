"""What pending operations of an engine wait for, read from its status: for `ticket.why()` and `boki status --why`. Pure.

An engine reports plain facts (`core.status`); what they mean is written here, once, in sentences for people. What a status does not
say, because another version made it, counts as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

SEQUENCER: Final = "sequencer"
ENGINE: Final = "engine"
BOOKIES: Final = "bookies"
TERM: Final = "term"
POSITION: Final = "position"

Facts = Mapping[str, Any]


class Wait(NamedTuple):
    """`waits_for` is one of the words of this module; `log` None: it is about all of them."""

    waits_for: str
    message: str
    log: int | None = None


def waits_of(engine: str, status: Facts) -> list[Wait]:
    """All that something waits for in an engine, what is missing first in front; empty when nothing does."""
    logs = status.get("logs") or [status]
    several = len(logs) > 1
    found: list[Wait] = []
    for log in logs:
        found += _sequencer(_where(engine, log, several=several), log)
    if status.get("ready") is False:
        where = _where(engine, status, several=False)
        found.append(Wait(ENGINE, f"{where} is still reading what was ordered before it started"))
    for log in logs:
        found += _appends(_where(engine, log, several=several), log)
    for log in logs:
        found += _index(_where(engine, log, several=several), log)
    return found + list(_engine(engine, status))


def _where(engine: str, log: Facts, *, several: bool) -> str:
    named = [f"log {log['log']}"] if several else []
    if log.get("term"):
        named.append(f"term {log['term']}")
    return f"{engine} ({', '.join(named)})" if named else engine


def _sequencer(where: str, log: Facts) -> Iterator[Wait]:
    if log.get("sequencer", True) or log.get("idle"):
        return
    away_s = log.get("sequencer_away_s")
    since = "" if away_s is None else f" since {away_s:.1f} s"
    if log.get("term_over"):
        message = f"{where} waits for the next term: the last one is over, and the view names no other yet{_queue(log)}"
        yield Wait(TERM, message, log.get("log"))
    else:
        message = f"{where} is connected to no sequencer{since}: is one up, and has it enough bookies?{_queue(log)}"
        yield Wait(SEQUENCER, message, log.get("log"))


def _queue(log: Facts) -> str:
    queued = log.get("queued") or {}
    if not queued.get("batches"):
        return ""
    return f"; {queued['batches']} batches of appends wait, the oldest for {queued.get('oldest_s', 0.0):.1f} s"


def _appends(where: str, log: Facts) -> Iterator[Wait]:
    number = log.get("log")
    if "shard" not in log or not log.get("sequencer", True) or log.get("idle"):
        return
    shard = log["shard"]
    if shard is None:
        message = f"{where} has no shard open: it waits for a sequencer, or for bookies to open one{_queue(log)}"
        yield Wait(SEQUENCER, message, number)
        return
    failing = shard.get("failing_bookies") or []
    if shard.get("submitted_entries", 0) > shard.get("acked_entries", 0):
        message = f"{where} waits for bookies to acknowledge entries of ledger {shard.get('ledger_id')}"
        if shard.get("unacked_s") is not None:
            message += f", the oldest sent {shard['unacked_s']:.1f} s ago"
        yield Wait(BOOKIES, message + (f"; failing: {', '.join(failing)}" if failing else "") + _queue(log), number)
    elif failing:
        message = f"{where} writes ledger {shard.get('ledger_id')} without failing bookies: {', '.join(failing)}"
        yield Wait(BOOKIES, message, number)
    if shard.get("acked_entries", 0) > shard.get("cut_entries", 0):
        message = f"{where} has reported what is acknowledged; the sequencer has not ordered it yet"
        yield Wait(SEQUENCER, message, number)


def _index(where: str, log: Facts) -> Iterator[Wait]:
    number = log.get("log")
    stop = log.get("stopped")
    if stop:
        yield Wait(
            ENGINE,
            f"{where} stops at entry {stop['entry']} of the metalog of term {stop['term']}, which it cannot apply: {stop['error']}",
            number,
        )
    for one in log.get("unreadable") or ():
        yield Wait(
            BOOKIES,
            f"{where} cannot read entries {one['first']} to {one['last']} of ledger {one['ledger_id']}, which are ordered: "
            f"{one['error']}",
            number,
        )
    terms = log.get("waits_for_terms")
    if terms:
        message = f"{where} indexes on when it has all of term {', '.join(map(str, terms))}, which had its slots before"
        yield Wait(TERM, message, number)
    elif log.get("lag_entries"):
        yield Wait(ENGINE, f"{where} is {log['lag_entries']} metalog entries behind", number)


def _engine(engine: str, status: Facts) -> Iterator[Wait]:
    moving = status.get("between_terms") or {}
    if moving.get("batches"):
        yield Wait(
            TERM, f"{engine} has appends whose slots no term orders now: they are moving{_queue({'queued': moving})}"
        )
    reads = status.get("reads") or {}
    for log, wanted in sorted((reads.get("positions") or {}).items(), key=lambda one: int(one[0])):
        yield Wait(
            POSITION,
            f"{engine} has reads that wait for log {log} to be indexed up to term {wanted['term']} entry {wanted['entry']}",
            int(log),
        )
