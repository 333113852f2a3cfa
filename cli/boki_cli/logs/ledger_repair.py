"""`boki ledger repair --bookie ID`: a bookie that lost part of its disk gets back what it owes, from its peers.

    1  read the metadata of every ledger; those that name the bookie matter
    2  a ledger that is not closed does not say which entries it has: with --recover-open it is recovered first (`data_ledger`), else
       only reported
    3  of every closed one: the entries that its write sets put on the bookie (`limbo_rules`) and that the bookie lacks are
       read from peers and sent to it (`replica_copies`)
    4  say what is still lacking: exit code 1 when something is

The bookie itself sees that it is whole, and ends its limbo by itself. Metadata of closed ledgers is never written.
Running it again costs reads and changes nothing, so a run that was interrupted is simply begun again.

A lost answer leaves no doubt here, unlike with other commands that write: what arrived is seen by the next run. So a bookie
that does not answer is *unreachable*, not an unknown outcome.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final

import click

from boki_cli.cluster.metadata_option import metadata_option
from boki_cli.exit_codes import CheckFailed
from boki_cli.logs.ledger_options import run_with_ledgers
from boki_cli.options import Invocation, command, flush
from boki_cli.wording import size_text
from boki_common.errors import BokiError, CorruptData, InvalidArgument, NoSuchLedger
from boki_common.ids import BookieId

if TYPE_CHECKING:
    from rich.progress import Progress

    from boki_common.bookkeeper.ledger_metadata import LedgerMetadata
    from boki_common.metadata.store import MetadataStore
    from boki_ledger.client import LedgerClient
    from boki_ledger.read.replica_copies import Copied

FAULTS_LISTED: Final = 20
"""Faults that the final message names; the lines before it have all of them."""
RANGES_LISTED: Final = 20


@dataclass(slots=True)
class Repair:
    """What a whole run found and did."""

    bookie: BookieId
    ledgers: int = 0
    """Closed ledgers that name the bookie."""
    held: int = 0
    copied: int = 0
    copied_bytes: int = 0
    lost: int = 0
    """Entries that no peer has whole."""
    unanswered: int = 0
    """Entries whose peers did not all answer."""
    left_open: list[int] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Why the bookie is not whole, each with its ledger."""


class Watcher:
    """Called with the progress of a repair; this one ignores it."""

    def ledger_done(self, ledger_id: int, owed: int, copied: Copied) -> None:
        """A ledger was looked at, and made as whole as its peers allow."""

    def expect(self, entries: int) -> None:
        """So many entries will be looked at."""

    def looked_at(self, copied_bytes: int) -> None:
        """One of them was."""


@command(None, "repair", writes=False, short_help="Copy to a bookie what it lost.")
@metadata_option
@click.option("--bookie", required=True, metavar="ID", help="The bookie's whole id, as boki ledger show tells it.")
@click.option("--recover-open", is_flag=True, help="Recover its ledgers that are open: fences their writers.")
def repair(invocation: Invocation, metadata: str | None, bookie: str, recover_open: bool) -> int:
    """Give a bookie that lost part of its disk (see boki bookie --salvage) the entries it lacks, from its peers.

    It must be up. Ledgers that are not closed are only named, unless --recover-open is given: their writers go on
    with new ledgers then. Of those with records that a log still orders, boki log roll ends that first. Run it as
    often as you like; exit code 1 says that something is lacking still, and what.
    """

    async def run(client: LedgerClient, store: MetadataStore) -> None:
        with _watcher(invocation) as watcher:
            done = await repair_bookie(client, store, BookieId(bookie), recover_open=recover_open, watcher=watcher)
        _report(invocation, done)

    return run_with_ledgers(invocation, metadata, run)


async def repair_bookie(
    client: LedgerClient, store: MetadataStore, bookie: BookieId, *, recover_open: bool, watcher: Watcher
) -> Repair:
    """The run, see the module. Raises InvalidArgument: there never was such a bookie; Unreachable, LedgerError: it does not
    answer, or refuses. MetadataUnavailable."""
    from boki_bookie.space.limbo_rules import names, owed_ranges
    from boki_common.bookkeeper.layout import cookie_path

    if not await store.exists(cookie_path(bookie)):
        raise InvalidArgument(
            f"expected the id of a bookie, found {bookie!r}; boki ledger show names those of a ledger"
        )
    done = Repair(bookie)
    owed: list[tuple[int, LedgerMetadata, list[range]]] = []
    for ledger_id in await client.list():
        try:
            metadata = await client.metadata_of(ledger_id)
        except NoSuchLedger:
            continue  # deleted meanwhile
        except CorruptData as error:
            done.faults.append(f"the metadata of ledger {ledger_id} cannot be read ({error})")
            continue
        if not names(metadata, bookie):
            continue
        closed = await _closed(client, store, ledger_id, metadata, done, recover_open=recover_open)
        if closed is not None and names(closed, bookie):
            owed.append((ledger_id, closed, owed_ranges(closed, bookie)))
    watcher.expect(sum(map(len, chain.from_iterable(ranges for _, _, ranges in owed))))
    for ledger_id, metadata, ranges in owed:
        copies = client.copies(ledger_id, metadata, bookie)
        try:
            copied = await copies.make_whole(chain.from_iterable(ranges), looked_at=watcher.looked_at)
        except NoSuchLedger:
            continue  # deleted meanwhile
        _count(done, ledger_id, copied)
        watcher.ledger_done(ledger_id, sum(map(len, ranges)), copied)
    return done


async def _closed(
    client: LedgerClient,
    store: MetadataStore,
    ledger_id: int,
    metadata: LedgerMetadata,
    done: Repair,
    *,
    recover_open: bool,
) -> LedgerMetadata | None:
    """The metadata of a ledger that is closed, perhaps only now; None if it stays open."""
    if metadata.state.name == "CLOSED":
        return metadata
    from boki_cli.logs.data_ledger import recover_ledger

    if not recover_open:
        done.left_open.append(ledger_id)
        return None
    try:
        await recover_ledger(store, client, ledger_id, metadata, password=metadata.password)
        return await client.metadata_of(ledger_id)
    except NoSuchLedger:
        return None
    except BokiError as error:
        done.left_open.append(ledger_id)
        done.faults.append(f"ledger {ledger_id} could not be recovered ({error})")
        return None


def _count(done: Repair, ledger_id: int, copied: Copied) -> None:
    done.ledgers += 1
    done.held += copied.held
    done.copied += copied.copied
    done.copied_bytes += copied.copied_bytes
    for missing, why in (
        (copied.lost, "no other bookie has whole"),
        (copied.unanswered, "no other bookie gives while some do not answer: try again when they are back"),
    ):
        if missing.total:
            more = missing.total - len(missing.entries)
            named = ranges_text(missing.entries) + (f" and {more:,} more" if more else "")
            done.faults.append(f"ledger {ledger_id}: it lacks entries {named}, which {why}")
    done.lost += copied.lost.total
    done.unanswered += copied.unanswered.total


def runs_of(entries: Iterable[int]) -> list[tuple[int, int]]:
    """(first, last) of each run of consecutive ids; `entries` ascend."""
    runs: list[tuple[int, int]] = []
    for entry_id in entries:
        if runs and runs[-1][1] + 1 == entry_id:
            runs[-1] = runs[-1][0], entry_id
        else:
            runs.append((entry_id, entry_id))
    return runs


def ranges_text(entries: Sequence[int]) -> str:
    """Ascending ids for a person: "0-7, 9"; of very many runs the first ones."""
    runs = runs_of(entries)
    listed = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs[:RANGES_LISTED])
    return listed + (f", … ({len(runs) - RANGES_LISTED:,} more ranges)" if len(runs) > RANGES_LISTED else "")


# -- what a person, or a program, sees


def _report(invocation: Invocation, done: Repair) -> None:
    """The result. Raises CheckFailed when the bookie is not whole."""
    if invocation.json:
        invocation.emit(
            {
                "bookie": done.bookie,
                "ledgers": done.ledgers,
                "entries": done.held + done.copied + done.lost + done.unanswered,
                "copied": done.copied,
                "copied_bytes": done.copied_bytes,
                "lost": done.lost,
                "unanswered": done.unanswered,
                "left_open": done.left_open,
            }
        )
        flush()
    else:
        click.echo(
            f"bookie {done.bookie}: {done.held:,} entries of {done.ledgers:,} closed ledgers were there, "
            f"{done.copied:,} copied ({size_text(done.copied_bytes)})"
        )
        if done.left_open:
            click.echo(
                f"not closed, so not looked at: ledgers {ranges_text(done.left_open)}. In limbo the bookie waits for their "
                "end; --recover-open closes them, which fences their writers"
            )
    if done.faults:
        listed = "; ".join(done.faults[:FAULTS_LISTED])
        more = f"; and {len(done.faults) - FAULTS_LISTED} more" if len(done.faults) > FAULTS_LISTED else ""
        raise CheckFailed(f"bookie {done.bookie} is not whole: {listed}{more}", bookie_id=done.bookie)


class _Lines(Watcher):
    """One JSON object for each ledger that lacked something."""

    def __init__(self, emit: Callable[[object], None]) -> None:
        self._emit = emit

    def ledger_done(self, ledger_id: int, owed: int, copied: Copied) -> None:
        if owed == copied.held:
            return
        self._emit(
            {
                "ledger_id": ledger_id,
                "owed": owed,
                "held": copied.held,
                "copied": copied.copied,
                "copied_bytes": copied.copied_bytes,
                "lost": copied.lost.total,
                "lost_ranges": runs_of(copied.lost.entries),
                "unanswered": copied.unanswered.total,
                "unanswered_ranges": runs_of(copied.unanswered.entries),
            }
        )
        flush()


class _Bar(Watcher):
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("repairing", total=None, copied=size_text(0))
        self._copied = 0

    def expect(self, entries: int) -> None:
        self._progress.update(self._task, total=entries)

    def looked_at(self, copied_bytes: int) -> None:
        self._copied += copied_bytes
        self._progress.update(self._task, advance=1, copied=size_text(self._copied))


@contextmanager
def _watcher(invocation: Invocation) -> Iterator[Watcher]:
    if invocation.json or not sys.stderr.isatty():
        yield _Lines(invocation.emit) if invocation.json else Watcher()
        return
    from rich import progress as bars
    from rich.console import Console

    with bars.Progress(
        bars.TextColumn("[bold]{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TextColumn("entries, {task.fields[copied]} copied"),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        yield _Bar(progress)
