"""`boki status`: who is up, at a glance or as JSON."""

from __future__ import annotations

import asyncio
import dataclasses
import textwrap
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from click.core import ParameterSource
from rich.console import Console
from rich.text import Text

from boki_cli import exit_codes
from boki_cli.cluster.metadata_option import configured_settings
from boki_cli.options import Invocation, command
from boki_cli.wording import counted, size_text
from boki_common.engine.engine_waits import waits_of
from boki_common.errors import Unreachable
from boki_common.runtime import process
from boki_common.runtime.token_file import token_of
from boki_metalog.terms import slot_rules

if TYPE_CHECKING:
    from boki_cli.facts.cluster_status import ClusterStatus, LogPlace, Part
    from boki_cli.roles import ProcessSettings

ANSWER_S: Final = 2.0
DETAIL_COLUMN: Final = 16


@command(None, "status", writes=False, client=True, short_help="Show who is up, terms, positions, lag.")
@click.option("--metadata", metavar="URI", help="The metadata store with all parts; else the one that an engine names.")
@click.option("--why", is_flag=True, help="Also say what pending operations of each engine wait for.")
@click.option("--check", is_flag=True, help="Exit code 1, with the reasons, unless all is as it should be.")
def status(invocation: Invocation, metadata: str | None, why: bool, check: bool) -> int:
    """Show who is up, and how far everybody is.

    Each part is asked directly, and what does not answer is shown with the reason. Engines are asked at --url;
    bookies and sequencers are known to the metadata store, which an engine names (or --metadata, or
    BOKI_METADATA, when none is up). The exit code is 3 if nothing answers.

    With --check the exit code is 1 when a part is down, an engine catches up, a log is served by nobody or no bookie takes
    writes: for scripts that wait for a cluster, or watch one.

    With --why each engine says what its pending operations wait for: a sequencer, bookies, the next term, a position.
    """
    settings = configured_settings(invocation, metadata)
    is_usual = click.get_current_context().get_parameter_source("url") is ParameterSource.DEFAULT
    return process.run_command(lambda: _status(invocation, settings, why=why, check=check, url_is_usual=is_usual))


async def _status(
    invocation: Invocation, settings: ProcessSettings, *, why: bool, check: bool, url_is_usual: bool
) -> int:
    from boki_cli import roles
    from boki_cli.facts import cluster_status

    timeout_s = min(ANSWER_S, invocation.timeout_s)
    found = None
    if not settings.metadata:
        found = await cluster_status.gather(
            invocation.url, None, timeout_s=timeout_s, token=await token_of(settings.token_file)
        )
        settings = dataclasses.replace(
            settings, metadata=await asyncio.to_thread(cluster_status.metadata_nearby, found)
        )
    if settings.metadata or found is None:
        async with roles.open_metadata(settings) as parts:
            found = await cluster_status.gather(
                invocation.url, parts.metadata, timeout_s=timeout_s, token=parts.token, url_is_usual=url_is_usual
            )
    faults = cluster_status.faults_of(found)
    if invocation.json:
        whole: dict[str, Any] = msgspec.to_builtins(found)
        for engine, shown in zip(found.engines, whole["engines"], strict=True):
            shown["lag_entries"] = cluster_status.lag_entries(engine, found.sequencers) if engine.up else None
            if why and engine.up:
                shown["waits"] = [wait._asdict() for wait in waits_of(engine.address, engine.status)]
        invocation.emit(whole | {"faults": faults})
    else:
        draw(invocation, found, why=why)
    if not found.anything_up:
        raise Unreachable(
            f"nothing answers at {invocation.url}{' nor among what the metadata store lists' if settings.metadata else ''}; "
            "is it up? `boki dev` starts everything on this machine"
        )
    if check and faults:
        raise exit_codes.CheckFailed(f"{counted(len(faults), 'thing is', 'things are')} wrong\n" + "\n".join(faults))
    return exit_codes.OK


def _line_of(part: Part) -> Text:
    line = Text.assemble(
        ("up    ", "green") if part.up else ("down  ", "red"), (f"{part.role + ' ':<10}", "bold"), part.address
    )
    return line.append(f"  {(part.status.get('incarnation') or part.name)[:12]}", "dim")


def draw(invocation: Invocation, found: ClusterStatus, *, why: bool = False) -> None:
    """The status for a person: one line a part; with `why` also what waits in each engine, and for what."""
    from boki_cli.facts.cluster_access import access_lines
    from boki_cli.facts.cluster_faults import clock_warnings

    console = invocation.console()
    for part in found.parts:
        console.print(_line_of(part), soft_wrap=True)
        _print_below(console, describe(part, found))
        for text in clock_warnings(part):
            _print_below(console, text, "yellow")
        if why and part.role == "engine" and part.up:
            for wait in describe_waits(part):
                _print_below(console, wait, "yellow")
    for text in access_lines(found):
        console.print(Text(text, "yellow" if text.startswith("insecure") else ""), soft_wrap=True)
    if found.view is None:
        console.print("bookies and sequencers are known to the metadata store: add --metadata URI", style="dim")
        return
    for described in describe_logs(found):
        console.print(described, soft_wrap=True)


def _print_below(console: Console, text: str, style: str = "") -> None:
    """The details of a part, wrapped below its line."""
    for line in textwrap.wrap(text, max(40, console.width - DETAIL_COLUMN)) or [""]:
        console.print(Text(" " * DETAIL_COLUMN + line, style), soft_wrap=True)


def describe_waits(engine: Part) -> list[str]:
    """What pending operations of an engine wait for, a sentence each."""
    waits = [wait.message for wait in waits_of(f"engine {engine.address}", engine.status)]
    return waits or ["nothing waits for anything but its turn"]


def describe_logs(found: ClusterStatus) -> list[str]:
    """A line for each log: term, slots, who orders it; then how many stand by."""
    from boki_cli.facts.cluster_status import is_served

    assert found.view is not None
    lines = []
    for log, installed in sorted(found.view["logs"].items(), key=lambda one: int(one[0])):
        ranges = [(first, last) for first, last, owner in found.view["slots"] if owner == int(log)]
        count = sum(last + 1 - first for first, last in ranges)
        slots = f"{counted(count, 'slot')} ({slot_rules.slots_text(ranges)})"
        if installed is None:
            lines.append(f"log {log}: no term yet, {slots}; a sequencer and enough bookies begin one")
            continue
        here = is_served(installed, found.sequencers)
        lines.append(
            f"log {log}: term {installed['term']}, {slots}, metalog in ledger {installed['metalog_ledger']}, "
            f"sequencer {installed['sequencer'][:12]}{'' if here else ' (does not serve it)'}"
        )
    named = {installed["sequencer"] for installed in found.view["logs"].values() if installed is not None}
    standbys = sum(part.up and part.name not in named for part in found.sequencers)
    lines.append(f"{standbys} {'sequencer stands' if standbys == 1 else 'sequencers stand'} by")
    return lines


def describe(part: Part, found: ClusterStatus) -> str:
    """What matters of one part, in a line."""
    if not part.up:
        return part.problem
    if part.role == "engine":
        return _describe_engine(part, found)
    if part.role == "sequencer":
        return _describe_sequencer(part.status)
    if part.role == "controller":
        return _describe_controller(part.status)
    return "read only" if part.status.get("read_only") else "takes writes"


def _describe_engine(part: Part, found: ClusterStatus) -> str:
    from boki_cli.facts.cluster_status import places_of

    status = part.status
    places = places_of(part, found.sequencers)
    details = [_describe_place(place, several=len(places) > 1) for place in places] or ["nothing ordered yet"]
    if not status.get("ready", True):
        details.insert(0, "catching up")
    details += [
        counted(int(status.get("records") or 0), "record"),
        f"index {size_text(int(status.get('index', {}).get('bytes') or 0))}",
        f"cache {size_text(int(status.get('cache', {}).get('bytes') or 0))}",
    ]
    return (", " if len(places) < 2 else "; ").join(details)


def _describe_place(place: LogPlace, *, several: bool) -> str:
    lag = place.lag_entries
    details = [
        f"term {place.term}, position {place.end_pos:,}" if place.seqnum else "nothing ordered yet",
        "lag unknown" if lag is None else f"lag {counted(lag, 'entry', 'entries')}" if lag else "no lag",
        f"shard {place.shard['number']} in ledger {place.shard['ledger_id']}" if place.shard else "no shard yet",
    ]
    return (f"log {place.log}: " if several else "") + ", ".join(details)


def _describe_controller(status: dict[str, Any]) -> str:
    if status.get("failed"):
        return f"failed: {status['failed']}"
    if not status.get("leading"):
        return "stands by"
    faults = [f"{one['name']}: {one['fault']}" for one in status.get("policies", ()) if one.get("fault")]
    return "leads" + _describe_repair(status) + (f"; {'; '.join(faults)}" if faults else "")


def _describe_repair(status: dict[str, Any]) -> str:
    """Return the repair work of a leading controller, after a comma; "" before its first audit."""
    repair = (status.get("duties") or {}).get("repair") or {}
    audit = repair.get("audit")
    if not audit:
        return ""
    missing = counted(audit["missing_ledgers"], "ledger misses", "ledgers miss") + " copies"
    drains = counted(len(repair.get("drains", ())), "bookie drains", "bookies drain")
    details = [missing] * bool(audit["missing_ledgers"]) + [drains] * bool(repair.get("drains"))
    return "".join(f", {one}" for one in [*details, *(["repair is paused"] if repair.get("paused") else [])])


def _describe_sequencer(status: dict[str, Any]) -> str:
    term = status.get("term")
    if status.get("failed"):
        return f"failed: {status['failed']}"
    if not term or not status.get("serving", True):
        only = status.get("log")
        return "stands by" if only is None else f"stands by for log {only}"
    return (
        f"serves log {status['log']}: term {term['term']}, {counted(term['entries'], 'entry', 'entries')}, position {term['end_pos']:,}, "
        f"{counted(len(term['shards']), 'shard')}, {counted(term['subscribers'], 'engine follows', 'engines follow')}"
    )
