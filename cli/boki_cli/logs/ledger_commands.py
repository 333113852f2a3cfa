"""`boki ledger ls | show | read`: what lies below the log, for people who want to look.

Reads the metadata store and the bookies themselves; nothing is recovered, fenced or changed. What does change something is
in `ledger_changes` and `ledger_repair`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click
from rich.table import Table

from boki_cli.cluster.metadata_option import metadata_option
from boki_cli.logs import ledger_changes, ledger_repair
from boki_cli.logs.ledger_options import LEDGER_ID, ROLE, run_with_ledgers
from boki_cli.number_types import Whole
from boki_cli.options import CommandGroup, Invocation, command, flush
from boki_cli.wording import field_line, size_text

if TYPE_CHECKING:
    from boki_common.bookkeeper.ledger_metadata import LedgerMetadata
    from boki_ledger.client import LedgerClient

PREVIEW_BYTES: Final = 24


ledger: Final = CommandGroup("ledger", help="Ledgers: the fenced, replicated segments below the log.")
for one in (ledger_changes.recover, ledger_changes.delete, ledger_repair.repair):
    ledger.add_command(one)


@command(ledger, "ls", writes=False, short_help="List all ledgers.")
@metadata_option
def ls(invocation: Invocation, metadata: str | None) -> int:
    """List all ledgers, with state, length and where their copies are."""
    return run_with_ledgers(invocation, metadata, lambda client, _: _list(invocation, client))


async def _list(invocation: Invocation, client: LedgerClient) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("ledger", "what", "state", "last entry", "bytes", "copies", "bookies"):
        table.add_column(name, justify="right" if name in ("ledger", "last entry", "bytes") else "left")
    for ledger_id in await client.list():
        shown = describe(ledger_id, await client.metadata_of(ledger_id))
        if invocation.json:
            invocation.emit(shown)
            continue
        closed = shown["state"] == "CLOSED"
        table.add_row(
            str(ledger_id),
            shown["role"],
            shown["state"],
            str(shown["last_entry"]) if closed else "?",
            size_text(shown["length_bytes"]) if closed else "?",
            f"{shown['ack_quorum']} of {shown['write_quorum']} durable",
            ", ".join(bookie[:12] for bookie in shown["ensembles"][-1]["bookies"]),
        )
    if not invocation.json:
        invocation.console().print(table if table.row_count else "no ledgers yet")


def describe(ledger_id: int, metadata: LedgerMetadata) -> dict[str, Any]:
    """A ledger's metadata as JSON has it."""
    custom: Mapping[str, bytes] = dict(metadata.custom)
    return {
        "ledger_id": ledger_id,
        "role": custom.get(ROLE, b"").decode(errors="replace"),
        "state": metadata.state.name,
        "last_entry": metadata.last_entry,
        "length_bytes": metadata.length,
        "ensemble_size": metadata.ensemble_size,
        "write_quorum": metadata.write_quorum,
        "ack_quorum": metadata.ack_quorum,
        "ensembles": [{"first_entry": first, "bookies": list(bookies)} for first, bookies in metadata.ensembles],
        "digest": str(getattr(metadata.digest_type, "name", metadata.digest_type)),
        "created_ms": metadata.ctime,
        "custom": {name: value.decode(errors="replace") for name, value in custom.items()},
    }


@command(ledger, "show", writes=False, short_help="Show the metadata of a ledger.")
@LEDGER_ID
@metadata_option
def show(invocation: Invocation, ledger_id: int, metadata: str | None) -> int:
    """Show what the metadata store says about one ledger."""

    async def print_it(client: LedgerClient, _: object) -> None:
        shown = describe(ledger_id, await client.metadata_of(ledger_id))
        if invocation.json:
            invocation.emit(shown)
            return
        for name, value in shown.items():
            if name == "ensembles":
                for ensemble in value:
                    click.echo(field_line(f"from entry {ensemble['first_entry']}", ", ".join(ensemble["bookies"])))
            else:
                click.echo(field_line(name, value))

    return run_with_ledgers(invocation, metadata, print_it)


@command(ledger, "read", writes=False, short_help="Print the entries of a ledger.")
@LEDGER_ID
@metadata_option
@click.option("--from", "first", type=Whole(0), default=0, show_default=True, metavar="ENTRY")
@click.option("--to", "last", type=Whole(0), metavar="ENTRY", help="Inclusive. Default: the last known.")
def read(invocation: Invocation, ledger_id: int, metadata: str | None, first: int, last: int | None) -> int:
    """Print the entries of one ledger: number, size and how they begin; with --json all of their bytes.

    An open ledger is read up to the last entry that is known to be acknowledged.
    """
    return run_with_ledgers(invocation, metadata, lambda client, _: _read(invocation, client, ledger_id, first, last))


async def _read(invocation: Invocation, client: LedgerClient, ledger_id: int, first: int, last: int | None) -> None:
    reader = await client.open(ledger_id, recover=False)
    try:
        end = reader.last_entry if reader.closed else max(reader.last_entry, await reader.read_lac())
        if last is not None:
            end = min(end, last)
        for entry in range(first, end + 1):
            (payload,) = await reader.read(entry, entry)
            if invocation.json:
                data = base64.b64encode(payload).decode()
                invocation.emit({"entry": entry, "bytes": len(payload), "data_base64": data})
            else:
                click.echo(f"{entry:>8}  {len(payload):>9} B  {bytes(payload[:PREVIEW_BYTES]).hex(' ', 4)}")
        flush()
    finally:
        await reader.close()
