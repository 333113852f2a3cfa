"""`boki repair status | audit | scrub | pause | resume`: which ledgers miss copies because bookies are away, and what is done about it.

`status` asks the controllers: the one that leads looks after copies (`controller.repair`), and says what it saw, did and could not do.
`audit` needs no controller: it reads the metadata of all ledgers itself, once, and changes nothing. `pause` is a word to all
controllers that outlives them, until `resume`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from boki_cli.cluster.metadata_option import ANSWER_S, metadata_option, run_on_metadata
from boki_cli.exit_codes import CheckFailed
from boki_cli.logs.ledger_options import run_with_ledgers
from boki_cli.number_types import Whole
from boki_cli.options import CommandGroup, Invocation, command, flush
from boki_cli.wording import counted, size_text
from boki_common.errors import CorruptData, NoSuchLedger, Unreachable

if TYPE_CHECKING:
    from boki_cli.roles import Parts, ProcessSettings
    from boki_common.cluster_token import ClusterToken
    from boki_common.metadata.store import MetadataStore
    from boki_ledger.client import LedgerClient

NAMED: Final = 10
"""Ledgers and bookies that are listed for a person; --json has more of them."""

repair: Final = CommandGroup("repair", help="Copies of ledgers that lost bookies had, and how they come back.")


@command(
    repair, "status", writes=False, short_help="Say what the leading controller repairs, and what keeps it from it."
)
@metadata_option
def status(invocation: Invocation, metadata: str | None) -> int:
    """Say what the leading controller last saw of missing copies, what it copied, how fast, and what it cannot copy and why.

    \b
        boki repair status
        boki repair status --json | jq .blocked
    """

    async def run(parts: Parts, _: ProcessSettings) -> None:
        found = await leaders_status(parts.metadata, parts.token)
        if invocation.json:
            invocation.emit(found)
            flush()
        else:
            click.echo("\n".join(status_lines(found)))

    return run_on_metadata(invocation, metadata, run)


@command(repair, "audit", writes=False, short_help="Look at all ledgers once: which miss copies.")
@metadata_option
def audit(invocation: Invocation, metadata: str | None) -> int:
    """Read the metadata of all ledgers once, and say which of them have copies on bookies that are away. Changes nothing.

    Exit code 1 says that some do. Without a memory of how long a bookie is away, only those count as due that are retired, or
    whose ledgers have one copy left.
    """

    async def run(client: LedgerClient, _: MetadataStore) -> None:
        from boki_ledger.repair.audit import describe
        from boki_ledger.repair.settings import RepairLimits

        found = describe(await client.auditor(RepairLimits()).audit())
        if invocation.json:
            invocation.emit(found)
            flush()
        else:
            click.echo("\n".join(audit_lines(found)))
        if found["missing_ledgers"] or found["unreadable_ledgers"]:
            missing = counted(found["missing_ledgers"], "ledger misses", "ledgers miss")
            unreadable = len(found["unreadable_ledgers"])
            more = f", the metadata of {counted(unreadable, 'ledger')} cannot be read" if unreadable else ""
            raise CheckFailed(f"{missing} copies{more}")

    return run_with_ledgers(invocation, metadata, run)


@command(repair, "scrub", writes=True, short_help="Look for each copy of ledgers on the bookie that should have it.")
@metadata_option
@click.argument("ledgers", nargs=-1, type=Whole(0), metavar="[LEDGER]...")
@click.option("--digests", is_flag=True, help="Also read all copies, check their digests, and compare them.")
@click.option("--mend", is_flag=True, help="Make what is missing; send again what is damaged.")
def scrub(invocation: Invocation, metadata: str | None, ledgers: tuple[int, ...], digests: bool, mend: bool) -> int:
    """Ask each bookie for the copies that it should have of ledgers, of all of them by default. Only what is closed, or lies
    before the last fragment, is looked at. Exit code 1 says that a ledger is not whole.

    Two copies whose digests are right and that differ are named as diverged, and never changed: nothing says which of them was
    acknowledged.

    \b
        boki repair scrub
        boki repair scrub --digests --mend 17 18
    """

    async def run(client: LedgerClient, _: MetadataStore) -> None:
        scrubber = client.scrubber(mend=mend)
        faulty = looked_at = 0
        for ledger_id in ledgers or await client.list():
            try:
                found = await scrubber.scrub(ledger_id, digests=digests)
            except (NoSuchLedger, CorruptData) as error:
                if ledgers or isinstance(error, CorruptData):
                    raise
                continue  # deleted meanwhile
            looked_at += 1
            faulty += not found.is_whole
            if invocation.json:
                invocation.emit(found.describe())
            elif not found.is_whole or found.copied or found.replaced:
                click.echo(scrub_line(found.describe()))
            flush()
        if faulty:
            raise CheckFailed(f"{counted(faulty, 'ledger is', 'ledgers are')} not whole, of {looked_at:,}")
        if not invocation.json:
            click.echo(f"{counted(looked_at, 'ledger is', 'ledgers are')} whole")

    return run_with_ledgers(invocation, metadata, run)


@command(repair, "pause", writes=True, short_help="Keep all controllers from copying, until boki repair resume.")
@metadata_option
@click.option("--reason", default="", metavar="TEXT", help="For those who look at boki repair status.")
def pause(invocation: Invocation, metadata: str | None, reason: str) -> int:
    """Keep all controllers from copying, from retiring bookies and from rolling logs, until boki repair resume. It outlives
    restarts. A ledger that is being repaired is finished; a bookie that drains refuses writes on.

    \b
        boki repair pause --reason "the network is rebuilt"
    """
    return _set_pause(invocation, metadata, paused=True, reason=reason)


@command(repair, "resume", writes=True, short_help="Let controllers copy again as they are set.")
@metadata_option
def resume(invocation: Invocation, metadata: str | None) -> int:
    """Let controllers copy again, as controller.repair says. Nothing happens if repair is not paused.

    \b
        boki repair resume
    """
    return _set_pause(invocation, metadata, paused=False, reason="")


def _set_pause(invocation: Invocation, metadata: str | None, *, paused: bool, reason: str) -> int:
    async def run(parts: Parts, _: ProcessSettings) -> None:
        from boki_ledger.repair.pause import write_pause

        await write_pause(parts.metadata, paused=paused, reason=reason, rng=parts.rng)
        if invocation.json:
            invocation.emit({"paused": paused, "reason": reason})
        else:
            click.echo("repair is paused: boki repair resume ends that" if paused else "repair is not paused")

    return run_on_metadata(invocation, metadata, run)


async def leaders_status(metadata: MetadataStore, token: ClusterToken) -> dict[str, Any]:
    """Return the status of repair of the leading controller, with its address. Raises Unreachable: no controller leads."""
    from boki_cli.facts.cluster_status import controllers_of

    controllers = await controllers_of(metadata, timeout_s=ANSWER_S, token=token)
    for part in controllers:
        duty = part.status.get("duties", {}).get("repair")
        if part.status.get("leading") and duty is not None:
            return {"controller": part.address, **duty}
    known = "; ".join(f"{part.address}: {part.problem or 'does not lead'}" for part in controllers) or "none is listed"
    raise Unreachable(
        f"expected a controller that leads and repairs ({known}); start one with `boki controller`, or look once with "
        "`boki repair audit`"
    )


# -- for a person


def scrub_line(found: dict[str, Any]) -> str:
    """Return the line about a ledger that is not whole, or was not."""
    parts = [f"{found['copies']:,} copies are there"]
    if found["missing"]:
        parts.append(f"{found['missing']:,} were missing, {found['copied']:,} of them made")
    if found["lost"]:
        parts.append(f"{found['lost']:,} of entries that no bookie has whole")
    if found["damaged"]:
        named = ", ".join(f"{entry} on {bookie}" for entry, bookie in found["damaged_copies"][:NAMED])
        parts.append(f"{found['damaged']:,} damaged ({named}), {found['replaced']:,} of them replaced")
    if found["diverged"]:
        named = ", ".join(f"{entry} on {bookies}" for entry, bookies in found["diverged_entries"][:NAMED])
        parts.append(f"{found['diverged']:,} entries DIVERGED, left as they are ({named})")
    parts += [f"bookie {bookie}: {why}" for bookie, why in found["unanswered"].items()]
    return f"ledger {found['ledger_id']}: {'; '.join(parts)}"


def status_lines(found: dict[str, Any]) -> list[str]:
    """Return the lines that `status` prints."""
    modes = {
        "ours": "makes missing copies anew",
        "observe": "only reports missing copies (controller.repair = ours makes them anew)",
        "off": "does not look for missing copies (controller.repair = off)",
    }
    if found["paused"]:
        modes["observe"] = "copies nothing"
    why = f": {found['why']}" if found["why"] else ""
    lines = [f"controller {found['controller']} {modes.get(found['mode'], found['mode'])}{why}"]
    lines += ["it has not looked yet"] if found["audit"] is None else audit_lines(found["audit"])
    apaches = found["apaches_autorecovery"]
    if apaches["elected"] or apaches["locked_ledgers"] or apaches["marked_ledgers"]:
        state = "runs" if apaches["elected"] else "does not run"
        off = ", switched off" if apaches["disabled"] else ""
        lines.append(
            f"Apache's AutoRecovery {state}{off}: {counted(apaches['marked_ledgers'], 'ledger')} marked, "
            f"{len(apaches['locked_ledgers'])} locked by its workers"
        )
    if found["repaired_ledgers"] or found["copied_entries"]:
        left = "" if found["left_s"] is None else f", about {found['left_s']:,.0f} s left"
        lines.append(
            f"since it leads: {counted(found['repaired_ledgers'], 'ledger')} repaired, "
            f"{counted(found['copied_entries'], 'entry', 'entries')} copied ({size_text(found['copied_bytes'])}, "
            f"{size_text(found['bytes_per_s'])}/s{left})"
        )
    for one in found["drains"][:NAMED]:
        waits = "; ".join(one["waits_for"]) or "looked at soon"
        lines.append(f"drains: bookie {one['bookie']}: {waits}")
    for one in found["blocked"][:NAMED]:
        lost = one["lost_entries"]
        entries = f"; entries on no bookie: {', '.join(map(str, lost[:NAMED]))}" if lost else ""
        lines.append(f"blocked: ledger {one['ledger_id']}: {'; '.join(one['why'])}{entries}")
    return [*lines, *_more(found["blocked_ledgers"] - NAMED, "blocked ledger")]


def audit_lines(found: dict[str, Any]) -> list[str]:
    """Return the lines about an audit."""
    seen = f"{counted(found['ledgers'], 'ledger')} on {counted(found['bookies'], 'bookie')}"
    missing = _missing_lines(found) if found["missing_ledgers"] else ["no copy is missing"]
    leaving = []
    if found["leaving_ledgers"]:
        ledgers = counted(found["leaving_ledgers"], "ledger has", "ledgers have")
        leaving = [f"{ledgers} copies on bookies that drain: about {size_text(found['leaving_bytes'])}"]
    return [seen, *_away_lines(found), *missing, *leaving]


def _away_lines(found: dict[str, Any]) -> list[str]:
    """Return a line for each bookie that is away, and one more in a mass outage."""
    lines = []
    for one in found["away"][:NAMED]:
        away_s = one["away_s"]
        gone = "retired" if one["retired"] else f"away for {away_s:,.0f} s" if away_s >= 1 else "away"
        lines.append(f"bookie {one['bookie']}: {gone}")
    lines += _more(len(found["away"]) - NAMED, "bookie")
    if found["mass_outage"]:
        lines.append("more than a quarter of the bookies are away: only ledgers with a single copy left are due")
    return lines


def _missing_lines(found: dict[str, Any]) -> list[str]:
    """Return how many copies are missing, then a line for each of the most urgent ledgers."""
    by_copies = ", ".join(
        f"{count:,} with {counted(int(left), 'copy', 'copies')} left"
        for left, count in sorted(found["ledgers_by_copies_left"].items(), key=lambda one: int(one[0]))
    )
    total = (
        f"{counted(found['missing_ledgers'], 'ledger misses', 'ledgers miss')} copies ({by_copies}): "
        f"{counted(found['missing_entries'], 'entry', 'entries')}, about {size_text(found['missing_bytes'])}; due now: "
        f"{counted(found['due_ledgers'], 'ledger')}"
    )
    lines = [total]
    for one in found["most_urgent"][:NAMED]:
        written = "; written still, its writer or recovery replaces them" if one["written"] else ""
        lines.append(
            f"ledger {one['ledger_id']}: {counted(one['missing_entries'], 'entry', 'entries')} on "
            f"{', '.join(bookie[:12] for bookie in one['away'])}{written}"
        )
    return [*lines, *_more(found["missing_ledgers"] - NAMED, "ledger")]


def _more(count: int, noun: str) -> list[str]:
    return [f"… and {count:,} more {noun}{'' if count == 1 else 's'}"] if count > 0 else []
