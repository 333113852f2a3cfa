"""What of a cluster is not as it should be, a sentence each: `boki status --check` fails with them. Pure.

| what is expected | by whom it is named |
|---|---|
| every bookie that was formatted | its cookie, until it is retired or forgotten |
| every engine, sequencer, controller that was not stopped by a person | its registration, until it begins again or is forgotten |
| a sequencer for each log | the view |
| as many copies of new entries, and of those of ledgers written now, as are asked for | settings of engines and sequencers |
| all copies of closed ledgers; repair that is not blocked or paused | the leading controller |
| a cluster token at all ports, or at none | each part |
| clocks that agree | the answers of sequencers, and what engines found |

So what is killed is down, not gone, and redundancy that is used up is said before the next loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from boki_cli.facts.cluster_access import open_parts_of
from boki_cli.facts.cluster_facts import ClusterStatus, LedgerCopies, Part, is_served
from boki_cli.wording import counted
from boki_common.engine.admission import Admission
from boki_logbook.upkeep.clock_rules import ClockReading, warning

CLOCK_BOUND_MS: Final = 5_000
"""As engines have it by default (`clock_bound_s`)."""
NAMED: Final = 5
"""Ledgers that are named; the rest is counted."""


def faults_of(found: ClusterStatus) -> list[str]:
    """What is not as it should be."""
    faults = [f"{part.role} {_called(part)} is down: {part.problem}" for part in found.parts if not part.up]
    faults += [
        f"{part.role} {part.address} failed: {part.status['failed']}"
        for part in found.parts
        if part.status.get("failed")
    ]
    faults += [
        f"engine {engine.address}: {fault}" for engine in found.engines for fault in engine.status.get("faults") or ()
    ]
    faults += [
        f"engine {engine.address}: {Admission(**refused).sentence()}"
        for engine in found.engines
        if (refused := engine.status.get("appends_refused"))
    ]
    faults += [
        f"engine {engine.address} catches up"
        for engine in found.engines
        if engine.up and not engine.status.get("ready", True)
    ]
    faults += [f"{part.role} {part.address}: {text}" for part in found.parts for text in clock_warnings(part)]
    faults += [
        f"{part.role} {part.address} asks for no cluster token, though others do: start it with --token-file"
        for part in open_parts_of(found)
    ]
    if found.view is None:
        return [*faults, "bookies and sequencers are not known: no engine names a metadata store that is here"]
    faults += _bookie_faults(found)
    faults += _copies_faults(found)
    faults += _repair_faults(found)
    for log, installed in sorted(found.view["logs"].items(), key=lambda one: int(one[0])):
        if installed is None:
            faults.append(f"log {log} has no term yet: a sequencer and enough bookies begin one")
        elif not is_served(installed, found.sequencers):
            faults.append(
                f"log {log} is served by nobody: its sequencer {installed['sequencer'][:12]} does not answer so"
            )
    return faults


def clock_warnings(part: Part) -> list[str]:
    """How the times of logs and the clocks differ: what an engine found, or what a sequencer's answer says of this machine."""
    if part.role == "engine":
        logs = part.status.get("logs") or ()
        found = [(log.get("log"), (log.get("clock") or {}).get("warning")) for log in logs]
        return [f"log {number}: {text}" for number, text in found if text]
    term = part.status.get("term") if part.role == "sequencer" else None
    if not term or "now_ms" not in term or not part.received_ms:
        return []
    reading = ClockReading(part.asked_ms, part.received_ms, int(term["now_ms"]), int(term.get("time_ms") or 0))
    text = warning(reading, CLOCK_BOUND_MS, whose="this machine's")
    return [f"log {part.status.get('log')}: {text}"] if text else []


def _called(part: Part) -> str:
    """A part of which no address is known has its name."""
    return part.address or part.name


def _takes_writes(bookie: Part) -> bool:
    return bookie.up and not bookie.status.get("read_only")


def _bookie_faults(found: ClusterStatus) -> Iterator[str]:
    """Bookies that take no writes, and what that means for new ledgers."""
    draining = {one["bookie"] for one in found.repair.get("drains", ())}
    for bookie in found.bookies:
        if bookie.name in draining:
            continue  # said with what its drain waits for
        if bookie.up and bookie.status.get("read_only"):
            yield f"bookie {_called(bookie)} is read only: its disk is full, or an administrator set it so; it gets no new entries"
    writable = sum(map(_takes_writes, found.bookies))
    if not writable:
        yield "no bookie takes writes"
        return
    asked: dict[tuple[int, int], list[str]] = {}
    for part in (*found.engines, *found.sequencers):
        if part.up and part.status.get("replicas"):
            wish = int(part.status["replicas"]), int(part.status.get("acks") or 0)
            asked.setdefault(wish, []).append(f"{part.role} {part.address}")
    takes = counted(writable, "bookie takes writes", "bookies take writes")
    for (wanted, acks), who in sorted(asked.items()):
        whose = f" of {', '.join(who)}" if len(asked) > 1 else ""
        if writable < acks:
            yield f"new ledgers{whose} cannot be made: {takes}, expected at least {acks}"
        elif writable < wanted:
            yield f"new ledgers{whose} get {counted(writable, 'copy', 'copies')}, expected {wanted}: {takes}"


def _copies_faults(found: ClusterStatus) -> Iterator[str]:
    """Ledgers written now that have fewer bookies than is asked for; copies on bookies that are down are the bookies' fault."""
    yield from (f"{_ledger(one)}: {one.problem}" for one in found.ledgers if one.problem)
    few = [one for one in found.ledgers if not one.problem and len(one.bookies) < one.wanted]
    enough = sum(map(_takes_writes, found.bookies)) >= max((one.wanted for one in few), default=0)
    remedy = "it keeps them until its log begins a new term" + (": `boki log roll {}`" if enough else "")
    for one in few[:NAMED]:
        copies = counted(len(one.bookies), "copy", "copies")
        yield f"{_ledger(one)} was made with {copies}, expected {one.wanted}; {remedy.format(one.log)}"
    if len(few) > NAMED:
        yield f"{len(few) - NAMED} more ledgers that are written now have fewer copies than expected"


def _repair_faults(found: ClusterStatus) -> Iterator[str]:
    """Copies of closed ledgers that are missing, what keeps them from being made, and drains."""
    repair = found.repair
    if not repair:
        return
    audit = repair["audit"]
    if audit["missing_ledgers"]:
        copies = ", ".join(
            f"{count:,} with {counted(int(left), 'copy', 'copies')} left"
            for left, count in sorted(audit["ledgers_by_copies_left"].items(), key=lambda one: int(one[0]))
        )
        missing = counted(audit["missing_ledgers"], "ledger misses", "ledgers miss")
        yield f"{missing} copies on bookies that are away ({copies}): `boki repair status`"
    if repair.get("paused"):
        yield f"repair is {repair['why']}"
    for one in repair["blocked"][:NAMED]:
        yield f"ledger {one['ledger_id']} is not repaired: {'; '.join(one['why'])}"
    if repair["blocked_ledgers"] > NAMED:
        yield f"{repair['blocked_ledgers'] - NAMED} more ledgers are not repaired"
    for one in repair.get("drains", ()):
        yield f"bookie {one['bookie']} drains: {'; '.join(one['waits_for']) or 'it is looked at soon'}"


def _ledger(one: LedgerCopies) -> str:
    return f"ledger {one.ledger_id} ({one.what})"
