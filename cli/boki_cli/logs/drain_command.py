"""`boki drain BOOKIE`: a bookie leaves the cluster without loss. `--cancel` keeps it.

The command checks that the copies of the bookie find a place and that a controller moves them, marks the bookie, and shows what is left
until its id is retired. It may be interrupted and run again: the mark stays, and the leading controller continues (`repair.drain`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import click

from boki_cli.cluster.metadata_option import metadata_option
from boki_cli.logs.ledger_options import run_with_ledgers
from boki_cli.options import Invocation, command, flush
from boki_common.bookkeeper.bookie_mark import RETIRED, BookieMark
from boki_common.bookkeeper.bookie_marks import read_mark
from boki_common.errors import BokiError, Unreachable
from boki_common.ids import BookieId

if TYPE_CHECKING:
    from boki_common.metadata.store import MetadataStore
    from boki_ledger.client import LedgerClient

LOOK_S: Final = 1.0
"""Pause between two looks at a drain."""


class DrainRefused(BokiError):
    """The bookie cannot be drained now; `reasons` has the name of each reason."""


@command(None, "drain", writes=True, short_help="Empty a bookie into the others, and retire it.")
@metadata_option
@click.argument("bookie", metavar="BOOKIE")
@click.option("--cancel", is_flag=True, help="Keep the bookie: it takes writes again. What was copied stays copied.")
@click.option("--check", "only_check", is_flag=True, help="Only say whether it can be drained, and why not.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the bookie is retired.")
def drain(invocation: Invocation, metadata: str | None, bookie: str, cancel: bool, only_check: bool, wait: bool) -> int:
    """Empty a bookie into the others and retire it, without a moment in which a record has fewer copies.

    BOOKIE is its whole id, as boki status tells. It refuses all writes from now on, the leading controller copies what it has to
    other bookies (controller.repair = ours), and the bookie drops it. In the end its store is empty, no ledger names it, and
    it stops. A bookie that is gone may be drained as well: its copies are made from those of the others.

    The command may be interrupted and run again. Exit code 4 says that the bookie cannot be drained, with a name for each reason.

    \b
        boki drain 6f1c1f5e-8e25-4a77-9f38-2f1f0a4bb0d1 --check
        boki drain 6f1c1f5e-8e25-4a77-9f38-2f1f0a4bb0d1
        boki drain 6f1c1f5e-8e25-4a77-9f38-2f1f0a4bb0d1 --cancel
    """
    name = BookieId(bookie)

    async def run(client: LedgerClient, store: MetadataStore) -> None:
        if cancel:
            await client.cancel_drain(name)
            _say(invocation, {"bookie": name, "state": "active"}, f"bookie {name} is kept: it takes writes again")
            return
        mark = (await read_mark(store, name)).mark
        if mark.state == BookieMark().state:
            await _check(client, store, name)
        if only_check:
            _say(invocation, {"bookie": name, "state": mark.state}, f"bookie {name} can be drained")
            return
        await client.begin_drain(name)
        if wait:
            await _wait(invocation, client, store, name)
        else:
            _say(
                invocation,
                {"bookie": name, "state": "draining"},
                f"bookie {name} drains: boki repair status shows how far it is",
            )

    return run_with_ledgers(invocation, metadata, run)


async def _check(client: LedgerClient, store: MetadataStore, bookie: BookieId) -> None:
    """Raises DrainRefused: with all reasons. InvalidArgument: no such bookie. MetadataError."""
    reasons = {one.why.value: one.text for one in await client.check_drain(bookie)}
    status = await _leaders_status(client, store)
    if status is None:
        reasons["no controller"] = (
            "no controller leads that could move its copies: start one with controller.repair = ours"
        )
    elif status["mode"] != "ours":
        why = f" ({status['why']})" if status["why"] else ""
        reasons["no repair"] = (
            f"the leading controller {status['controller']} copies nothing{why}: set controller.repair = ours"
        )
    if reasons:
        text = "; ".join(f"{name}: {text}" for name, text in reasons.items())
        raise DrainRefused(f"bookie {bookie} cannot be drained. {text}", bookie=bookie, reasons=list(reasons))


async def _leaders_status(client: LedgerClient, store: MetadataStore) -> dict[str, Any] | None:
    """The status of repair of the leading controller; None if none leads."""
    from boki_cli.logs.repair_commands import leaders_status

    try:
        return await leaders_status(store, client.token)
    except Unreachable:
        return None


async def _wait(invocation: Invocation, client: LedgerClient, store: MetadataStore, bookie: BookieId) -> None:
    """Show what the drain waits for, whenever that changes, until the bookie is retired. Raises DrainRefused: it was cancelled."""
    shown: list[str] | None = None
    while True:
        mark = (await read_mark(store, bookie)).mark
        if mark.state == RETIRED:
            _say(
                invocation,
                {"bookie": bookie, "state": "retired"},
                f"bookie {bookie} is drained and retired: nothing names it",
            )
            return
        if mark.state == BookieMark().state:
            raise DrainRefused(f"the drain of bookie {bookie} was cancelled", bookie=bookie, reasons=["cancelled"])
        waits = await _waits(client, store, bookie)
        if waits != shown:
            _say(invocation, {"bookie": bookie, "state": mark.state, "waits_for": waits}, "\n".join(waits))
            shown = waits
        await asyncio.sleep(LOOK_S)


async def _waits(client: LedgerClient, store: MetadataStore, bookie: BookieId) -> list[str]:
    status = await _leaders_status(client, store)
    if status is None:
        return ["no controller leads: it goes on when one does"]
    if status["mode"] != "ours":
        return [f"the leading controller {status['controller']} copies nothing: set controller.repair = ours"]
    found = [one["waits_for"] for one in status["drains"] if one["bookie"] == bookie]
    return (
        found[0] or ["the leading controller looks at it soon"]
        if found
        else ["the leading controller looks at it soon"]
    )


def _say(invocation: Invocation, facts: dict[str, Any], text: str) -> None:
    if invocation.json:
        invocation.emit(facts)
    else:
        click.echo(text)
    flush()
