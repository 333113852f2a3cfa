"""`boki log ls | show | add | remove | roll | move | rebalance | verify | lost | give-up`: the physical logs, their terms, slots
and sequencers.

What changes something needs no controller: the command itself seals the terms concerned and installs the next ones, with
spare ledgers of sequencers that answer. Each may be repeated, whatever became of it before: what is done is not done again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import closing
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click
from rich.table import Table

from boki_cli.cluster.metadata_option import metadata_option, run_on_metadata
from boki_cli.logs import log_give_up
from boki_cli.number_types import Real, Whole
from boki_cli.options import CommandGroup, Invocation, command
from boki_cli.wording import counted, field_line
from boki_common.errors import InvalidArgument, NoNode
from boki_metalog.terms import slot_rules

if TYPE_CHECKING:
    from boki_common.metadata.store import MetadataStore
    from boki_ledger.client import LedgerClient
    from boki_metalog.control.log_changes import LogChanges
    from boki_metalog.terms.term_record import TermRecord
    from boki_metalog.terms.view import View

HISTORY: Final = 20
"""Sealed terms that `show` prints by default."""

_ON_ENTRIES: Final = {"verify": "boki_cli.logs.log_verify", "lost": "boki_cli.logs.log_lost"}

_LOG: Final = click.argument("log", type=Whole(0), metavar="LOG")
_RETRY_FOR: Final = click.option(
    "--timeout",
    "retry_for_s",
    type=Real(0.1),
    default=10.0,
    show_default=True,
    metavar="S",
    help="Seconds to go on trying while sequencers or bookies are away.",
)


class _LogCommands(CommandGroup):
    """Those that read entries are there once somebody asks for them: `boki --help` has no time for what they import."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.commands, *_ON_ENTRIES})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands and cmd_name in _ON_ENTRIES:
            self.add_command(getattr(import_module(_ON_ENTRIES[cmd_name]), cmd_name))
        return super().get_command(ctx, cmd_name)


log: Final = _LogCommands("log", help="Physical logs: terms, slots of books, sequencers.")
log.add_command(log_give_up.give_up)


# -- what looks


@command(log, "ls", writes=False, short_help="List the logs.")
@metadata_option
def ls(invocation: Invocation, metadata: str | None) -> int:
    """List the logs: term, slots, who orders it."""
    return run_on_metadata(invocation, metadata, lambda parts, _: _list(invocation, parts.metadata))


async def _list(invocation: Invocation, store: MetadataStore) -> None:
    view = await _view(store)
    listed = await _listed(store)
    if invocation.json:
        for log in sorted(view.logs):
            invocation.emit(describe(view, log, listed))
        return
    table = Table(box=None, pad_edge=False)
    for name in ("log", "term", "slots", "which", "metalog", "sequencer"):
        table.add_column(name, justify="right" if name in ("log", "term", "slots", "metalog") else "left")
    for log in sorted(view.logs):
        shown = describe(view, log, listed)
        table.add_row(
            str(log),
            str(shown["term"] or "none"),
            str(shown["slot_count"]),
            shown["slots"],
            "" if shown["metalog_ledger"] is None else str(shown["metalog_ledger"]),
            f"{shown['sequencer'][:12]} {shown['address'] or '(not listed)'}" if shown["sequencer"] else "none yet",
        )
    invocation.console().print(table)


def describe(view: View, log: int, listed: dict[str, str]) -> dict[str, Any]:
    """A log of the view, as JSON has it. `listed`: addresses of sequencers."""
    installed = view.installed(log)
    ranges = view.slots_of(log)
    sequencer = "" if installed is None else installed.sequencer
    return {
        "log": log,
        "term": view.term_of(log),
        "slots": slot_rules.slots_text(ranges),
        "slot_count": sum(last + 1 - first for first, last in ranges),
        "metalog_ledger": None if installed is None else installed.metalog_ledger,
        "sequencer": sequencer,
        "address": listed.get(sequencer),
    }


@command(log, "show", writes=False, short_help="Show a log and its earlier terms.")
@_LOG
@metadata_option
@click.option("--terms", type=Whole(0), default=HISTORY, show_default=True, help="Newest sealed terms to show.")
@click.option("--lost", is_flag=True, help="Also what they gave up (boki log lost), with the evidence; reads metalogs.")
def show(invocation: Invocation, log: int, metadata: str | None, terms: int, lost: bool) -> int:
    """Show a log: its current term, and the sealed ones, newest first. A log that was removed has only these."""
    from boki_cli.logs.ledger_options import run_with_ledgers

    if not lost:
        return run_on_metadata(invocation, metadata, lambda parts, _: _show(invocation, parts.metadata, log, terms))

    async def run(ledgers: LedgerClient, store: MetadataStore) -> None:
        await _show(invocation, store, log, terms, ledgers)

    return run_with_ledgers(invocation, metadata, run)


async def _show(
    invocation: Invocation, store: MetadataStore, log: int, terms: int, ledgers: LedgerClient | None = None
) -> None:
    """`ledgers`: to read what was given up."""
    from boki_cli.logs import log_losses
    from boki_logbook.scan.metalogs import terms_in

    view = await _view(store)
    sealed = await _sealed(store, log, view)
    if log not in view.logs and not sealed:
        raise _unknown(view, log)
    newest = sealed[::-1][:terms]
    now = describe(view, log, await _listed(store)) | {"in_view": log in view.logs, "sealed_terms": len(sealed)}
    history: list[dict[str, Any]] = [
        {
            "term": record.term,
            "slots": slot_rules.slots_text(record.slots),
            "metalog_ledger": record.metalog_ledger,
            "entries": record.last_entry + 1,
            "end_pos": record.end_pos,
            "last_time_ms": record.last_time_ms,
            "location": record.location.kind,
        }
        | log_give_up.described(record.given_up)
        for record in newest
    ]
    losses: list[dict[str, Any]] = []
    faults: list[str] = []
    if ledgers is not None:
        shown = {record.term for record in newest}
        read = [one for one in await terms_in(store) if one.log == log and (one.end is None or one.term in shown)]
        losses, faults = await log_losses.losses_of(ledgers, read)
        now |= {"lost": losses, "unreadable": faults} if invocation.json else {}
    if invocation.json:
        invocation.emit(now | {"terms": history})
        return
    for name, value in now.items():
        click.echo(field_line(name, value))
    table = Table(box=None, pad_edge=False)
    for name in ("sealed term", "entries", "positions", "metalog", "slots"):
        table.add_column(name, justify="left" if name == "slots" else "right")
    for one in history:
        table.add_row(*(str(one[name]) for name in ("term", "entries", "end_pos", "metalog_ledger", "slots")))
    if history:
        invocation.console().print(table)
    for line in (
        line for one in history if "given_up" in one for line in log_give_up.lines(one["term"], one["given_up"])
    ):
        click.echo(line)
    if ledgers is not None:
        for line in [*(line for one in losses for line in log_losses.lines(one)), *faults] or ["nothing was given up"]:
            click.echo(line)


# -- what changes


@command(log, "add", writes=True, short_help="Add a log.")
@click.argument("log", type=Whole(0), metavar="[LOG]", required=False)
@metadata_option
@_RETRY_FOR
@click.option("--empty", is_flag=True, help="Leave all slots where they are.")
def add(invocation: Invocation, log: int | None, metadata: str | None, retry_for_s: float, empty: bool) -> int:
    """Add a log, the lowest free number by default, and give it an even share of the slots.

    It needs a sequencer that stands by, or the next one that is started begins it.
    """

    async def change(changes: LogChanges, store: MetadataStore) -> None:
        from boki_metalog.terms.metadata_tree import read_view

        before = (await read_view(store)).view
        number = await changes.add(log)
        if not empty and not before.slots_of(number):
            held = {one: before.per_slot.count(one) for one in sorted(before.logs) if one != number}
            share = max(1, sum(held.values()) // max(1, sum(map(bool, held.values()))))
            await changes.spread(held | {number: share})
        await _say(invocation, store, f"log {number} is there", number)

    return _with_changes(invocation, metadata, retry_for_s, change)


@command(log, "remove", writes=True, short_help="Remove a log; its records stay readable.")
@_LOG
@metadata_option
@_RETRY_FOR
def remove(invocation: Invocation, log: int, metadata: str | None, retry_for_s: float) -> int:
    """Give all slots of a log to the others, in proportion to what they have, and end its last term."""

    async def change(changes: LogChanges, store: MetadataStore) -> None:
        view = await _view(store)
        if log not in view.logs and not await _sealed(store, log, view):
            raise _unknown(view, log)
        await changes.remove(log)
        await _say(invocation, store, f"log {log} is removed")

    return _with_changes(invocation, metadata, retry_for_s, change)


@command(log, "roll", writes=True, short_help="Begin the next term of a log.")
@_LOG
@metadata_option
@_RETRY_FOR
def roll(invocation: Invocation, log: int, metadata: str | None, retry_for_s: float) -> int:
    """End the current term of a log and begin the next one, with the same sequencer if it lives."""

    async def change(changes: LogChanges, store: MetadataStore) -> None:
        view = (await changes.roll(log)).view
        await _say(invocation, store, f"log {log} is in term {view.term_of(log)}", log)

    return _with_changes(invocation, metadata, retry_for_s, change)


@command(log, "move", writes=True, short_help="Move slots to a log.")
@click.argument("slots", metavar="SLOTS")
@click.option("--to", type=Whole(0), required=True, metavar="LOG", help="Where they go.")
@metadata_option
@_RETRY_FOR
def move(invocation: Invocation, slots: str, to: int, metadata: str | None, retry_for_s: float) -> int:
    """Move slots, such as 0-99,512, to a log, with their books. All logs concerned begin their next terms at once.

    Weights that are kept (boki log rebalance --keep) move them back: drop those first.
    """
    chosen = slot_rules.parse_slots(slots)

    async def change(changes: LogChanges, store: MetadataStore) -> None:
        await changes.move(chosen, to)
        await _say(invocation, store, f"log {to} has {counted(len(chosen), 'slot')} of {slots}", to)

    return _with_changes(invocation, metadata, retry_for_s, change)


@command(log, "rebalance", writes=True, short_help="Spread slots by weights.")
@click.option("--weights", metavar="LOG=N,…", help="Default: every log weighs 1. A log that is not named loses all.")
@click.option("--keep", is_flag=True, help="The leading controller keeps them so, also when logs are added.")
@click.option("--drop", is_flag=True, help="Nobody keeps weights any more; nothing is moved.")
@metadata_option
@_RETRY_FOR
def rebalance(
    invocation: Invocation, weights: str | None, keep: bool, drop: bool, metadata: str | None, retry_for_s: float
) -> int:
    """Spread the slots over the logs by weights, moving as few as possible.

    \b
        boki log rebalance
        boki log rebalance --weights 0=1,1=2
    """
    if drop and (keep or weights is not None):
        raise click.UsageError("expected --drop alone, or weights to spread by")
    chosen = None if weights is None else slot_rules.parse_weights(weights)

    async def change(changes: LogChanges, store: MetadataStore) -> None:
        from boki_metalog.control.weights import drop_weights, keep_weights

        if drop:
            await drop_weights(store)
            await _say(invocation, store, "slots stay where they are")
            return
        view = await _view(store)
        by_log = dict.fromkeys(sorted(view.logs), 1) if chosen is None else chosen
        await changes.spread(by_log)
        if keep:
            await keep_weights(store, dict.fromkeys(sorted(view.logs), 0) | by_log)
        await _say(invocation, store, "slots are spread")

    return _with_changes(invocation, metadata, retry_for_s, change)


async def _say(invocation: Invocation, store: MetadataStore, message: str, log: int | None = None) -> None:
    """The view after a change: of one log, or of all."""
    view = await _view(store)
    listed = await _listed(store)
    if invocation.json:
        for one in sorted(view.logs) if log is None else [log]:
            invocation.emit(describe(view, one, listed))
        return
    click.echo(message)
    for one in sorted(view.logs):
        shown = describe(view, one, listed)
        click.echo(
            f"  log {one}: term {shown['term'] or 'none'}, {counted(shown['slot_count'], 'slot')} ({shown['slots']})"
        )


# -- plumbing


async def _view(store: MetadataStore) -> View:
    from boki_metalog.terms.metadata_tree import read_view

    try:
        return (await read_view(store)).view
    except NoNode as error:
        raise InvalidArgument(
            "no cluster is in this metadata store yet: start one with `boki dev` or `boki init`"
        ) from error


async def _sealed(store: MetadataStore, log: int, view: View) -> list[TermRecord]:
    from boki_metalog.follow.term_history import TermHistory

    history = TermHistory(store)
    await history.refresh()
    return history.sealed(log, above=0, below=view.next_term)


def _unknown(view: View, log: int) -> InvalidArgument:
    return InvalidArgument(f"expected one of the logs {', '.join(map(str, sorted(view.logs)))}, found {log}", found=log)


async def _listed(store: MetadataStore) -> dict[str, str]:
    from boki_metalog.follow.sequencer_member import sequencer_members

    return {incarnation: member.address for incarnation, member in (await sequencer_members(store)).items()}


def _with_changes(
    invocation: Invocation,
    metadata: str | None,
    retry_for_s: float,
    use: Callable[[LogChanges, MetadataStore], Awaitable[None]],
) -> int:
    from boki_cli import roles
    from boki_metalog.control.log_changes import LogChanges

    async def run(parts: roles.Parts, settings: roles.ProcessSettings) -> None:
        await _view(parts.metadata)
        async with roles.ledger_client(parts, settings) as ledgers:
            made = LogChanges(parts.metadata, ledgers, parts.rng, retry_for_s=retry_for_s, token=parts.token)
            with closing(made) as changes:
                await use(changes, parts.metadata)

    return run_on_metadata(invocation, metadata, run)
