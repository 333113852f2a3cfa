"""`boki log give-up TERM ENTRY`: ends the current term of a log before an entry of its metalog that nobody can read (docs/unreadable.md).

Engines stop before such an entry, so nobody was answered for what it orders, or for what is ordered behind it; what was appended
meanwhile goes to the next term. Where that is not so it is refused:

- an engine says that it has the entry, or does not say what it has: it may have answered for it;
- the index snapshot lies behind the entry;
- the entry can be read, is not the first that cannot, or its term is over: its record stands.

The record of the term keeps what was given up, and why; `boki log show` lists it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import click

from boki_cli.cluster.metadata_option import metadata_option
from boki_cli.logs.ledger_options import run_with_ledgers
from boki_cli.number_types import Whole
from boki_cli.options import Invocation, command
from boki_cli.wording import time_text
from boki_common.errors import BokiError
from boki_common.runtime import process

if TYPE_CHECKING:
    from boki_cli.facts.cluster_facts import Part
    from boki_common.metadata.store import MetadataStore
    from boki_ledger.client import LedgerClient
    from boki_logbook.state.snapshot_rules import SnapshotNode
    from boki_metalog.terms.term_record import GivenUp

ASK_S: Final = 2.0
"""How long an engine has to say what it has."""


class Refused(BokiError):
    """Nothing is given up."""


@command(None, "give-up", writes=True, short_help="End a term before a metalog entry that nobody can read.")
@click.argument("term", type=Whole(1), metavar="TERM")
@click.argument("entry", type=Whole(0), metavar="ENTRY")
@click.option("--reason", required=True, help="For people: why nobody can read it, and who says so.")
@click.option(
    "--later-version", "later", is_flag=True, help="No program reads it, though it looks newer than this one."
)
@click.option("--engines-are-gone", "gone", is_flag=True, help="Engines that do not answer never will again.")
@metadata_option
def give_up(
    invocation: Invocation, term: int, entry: int, reason: str, later: bool, gone: bool, metadata: str | None
) -> int:
    """End the current term of a log before ENTRY of its metalog, where engines say that the log stops, and begin the next.

    Engines, bookies and the index snapshot are asked; it is refused when one of them has what ENTRY orders. There is no
    way back.
    """
    from boki_metalog.control.log_changes import LogChanges
    from boki_metalog.terms.term_end import Decision

    async def run(ledgers: LedgerClient, store: MetadataStore) -> None:
        log, done = await _term(store, term, entry)
        if not done:  # else it is merely printed again
            await _check_nobody_has(store, ledgers, log, (term, entry), gone=gone)
            decision = Decision(entry, reason, process.SystemClock().now_ms(), later)
            with closing(LogChanges(store, ledgers, process.SystemRandom(), token=ledgers.token)) as changes:
                await changes.give_up(log, term, decision)
        await _report(invocation, store, log, term)

    return run_with_ledgers(invocation, metadata, run)


async def _term(store: MetadataStore, term: int, entry: int) -> tuple[int, bool]:
    """The log of a term, and whether the term was ended before this entry already."""
    from boki_metalog.terms.metadata_tree import read_record, read_view

    view = (await read_view(store)).view
    for log, installed in sorted(view.logs.items()):
        if installed is not None and installed.term == term:
            return log, False
    if not 0 < term < view.next_term:
        raise Refused(f"expected a term below {view.next_term}, found {term}")
    record = await read_record(store, term)
    return record.log, record.given_up is not None and record.given_up.first_entry == entry


async def _check_nobody_has(
    store: MetadataStore, ledgers: LedgerClient, log: int, at: tuple[int, int], *, gone: bool
) -> None:
    """Raises Refused: somebody has, or may have, what lies behind a position of a log."""
    from boki_cli.facts.cluster_status import engines_of
    from boki_logbook.state.snapshots import SnapshotStore

    node, _ = await SnapshotStore(metadata=store, ledgers=ledgers, incarnation="").newest()
    if snapshot_is_behind(node, log, at):
        raise Refused(
            f"the index snapshot, written by engine {node.writer}, lies behind entry {at[1]} of term {at[0]}: an engine could read it, "
            "and others go on from that snapshot"
        )
    fault = why_not(await engines_of(store, timeout_s=ASK_S, token=ledgers.token), log, at, gone=gone)
    if fault is not None:
        raise Refused(fault)


def snapshot_is_behind(node: SnapshotNode, log: int, at: tuple[int, int]) -> bool:
    """Whether a snapshot has the entry at a position (term, entry) of a log."""
    return any(
        one.log == log and ((one.term, one.entry) > at or (one.term == at[0] and one.ended)) for one in node.logs
    )


def why_not(engines: Iterable[Part], log: int, at: tuple[int, int], *, gone: bool) -> str | None:
    """Which engine has the entry at a position of a log, or may have it. `gone`: those that do not answer never will again."""
    for engine in engines:
        if not engine.up:
            if gone:
                continue
            return (
                f"engine {engine.name} at {engine.address} does not say what it has ({engine.problem}): start it again, or if it is gone "
                "for good, say --engines-are-gone"
            )
        for one in engine.status.get("logs") or ([engine.status] if "term" in engine.status else []):
            position = one.get("position") or {}
            received = int(one.get("term") or 0), int(position.get("received_entry") or 0)
            indexed = int(position.get("indexed_term") or 0), int(position.get("indexed_entry") or 0)
            if int(one.get("log") or 0) == log and max(received, indexed) > at:
                return (
                    f"engine {engine.name} at {engine.address} has read entry {at[1]} of the metalog of term {at[0]}, and may have "
                    "answered for what it orders: nothing is given up while it knows that"
                )
    return None


async def _report(invocation: Invocation, store: MetadataStore, log: int, term: int) -> None:
    from boki_metalog.terms.metadata_tree import read_record, read_view

    next_term = (await read_view(store)).view.term_of(log)
    record = await read_record(store, term)
    assert record.given_up is not None, "this is what was decided"
    report = {"log": log, "term": term, "last_entry": record.last_entry, "next_term": next_term} | described(
        record.given_up
    )
    if invocation.json:
        invocation.emit(report)
    else:
        click.echo(
            f"term {term} of log {log} ends before entry {record.given_up.first_entry}; log {log} is in term {next_term}"
        )


def described(given_up: GivenUp | None) -> dict[str, Any]:
    """What a record says of it, as JSON has it."""
    if given_up is None:
        return {}
    return {
        "given_up": {
            "first_entry": given_up.first_entry,
            "last_entry": given_up.last_entry,
            "fault": given_up.fault,
            "reason": given_up.reason,
            "time_ms": given_up.time_ms,
        }
    }


def lines(term: int, given_up: dict[str, Any]) -> list[str]:
    """`described`, for people."""
    first, last = given_up["first_entry"], given_up["last_entry"]
    return [
        f"term {term} was ended before entry {first} of its metalog, which goes on to entry {last}: {given_up['fault']}",
        f"  given up on {time_text(given_up['time_ms'])}: {given_up['reason']}",
    ]
