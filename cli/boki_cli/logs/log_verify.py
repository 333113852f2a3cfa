"""`boki log verify`: the command around `boki_logbook.scan.verify`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click
from rich.table import Table

from boki_cli import exit_codes
from boki_cli.cluster.metadata_option import metadata_option
from boki_cli.logs.ledger_options import run_with_ledgers
from boki_cli.number_types import Whole
from boki_cli.options import Invocation, command
from boki_cli.wording import counted

if TYPE_CHECKING:
    from boki_common.metadata.store import MetadataStore
    from boki_ledger.client import LedgerClient
    from boki_logbook.scan.verify import Report

FAULTS_SHOWN: Final = 20
"""Of one term; their number is always given."""


@command(None, "verify", writes=False, short_help="Prove that logs are complete.")
@click.option("--log", type=Whole(0), help="Only this one; default: all.")
@metadata_option
def verify(invocation: Invocation, log: int | None, metadata: str | None) -> int:
    """Read logs from their first term to now, metalogs and data, and prove that nothing is missing.

    Counts and digests are compared with the newest index snapshot, as far as it reaches: equal or different. Exit code
    1, with the evidence, when something is missing or different.
    """
    from boki_logbook.scan.verify import verify_logs

    async def run(ledgers: LedgerClient, store: MetadataStore) -> None:
        _report(invocation, await verify_logs(store, ledgers, log, invocation.say))

    return run_with_ledgers(invocation, metadata, run)


def _report(invocation: Invocation, reports: Sequence[Report]) -> None:
    """A row per term. Raises CheckFailed when one has a fault."""
    if invocation.json:
        for report in reports:
            invocation.emit(report)
    else:
        table = Table(box=None, pad_edge=False)
        names = ("log", "term", "state", "cuts", "records", "shards", "entries", "lost", "index")
        for name in names:
            table.add_column(name, justify="left" if name in ("state", "index") else "right")
        for one in reports:
            cells = (one.cuts, one.records, one.shards, one.entries, one.lost)
            compared = one.verdicts if one.verdicts != "unknown" else f"not compared: {one.why}"
            table.add_row(str(one.log), str(one.term), one.state, *map(str, cells), compared)
        invocation.console().print(table)
    faults = [f"log {one.log}, term {one.term}: {fault}" for one in reports for fault in one.faults]
    if faults:
        shown = "\n".join(faults[:FAULTS_SHOWN])
        more = f"\nand {len(faults) - FAULTS_SHOWN} more" if len(faults) > FAULTS_SHOWN else ""
        raise exit_codes.CheckFailed(
            f"{counted(len(faults), 'fault')} in {counted(len(reports), 'term')}\n{shown}{more}"
        )
