"""`boki ledger recover | delete`: closing a ledger whose writer is gone, and ending one for good.

Both may be repeated: a ledger that is closed is recovered already, one that is gone is refused as unknown. A ledger that a
log still needs is not deleted, see `ledger_names`; one with records of a log is not closed short, see `data_ledger`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

import click

from boki_cli import exit_codes
from boki_cli.cluster.metadata_option import metadata_option
from boki_cli.logs.ledger_options import LEDGER_ID, run_with_ledgers
from boki_cli.options import YES, Invocation, command
from boki_common.errors import LedgerError

if TYPE_CHECKING:
    from boki_common.bookkeeper.ledger_metadata import LedgerMetadata
    from boki_common.metadata.store import MetadataStore
    from boki_ledger.client import LedgerClient


@command(None, "recover", writes=True, short_help="Fence a ledger and close it at its proven end.")
@LEDGER_ID
@metadata_option
@click.option(
    "--password-file",
    type=click.File("rb"),
    metavar="FILE",
    help="Holds the ledger's password; one line end at its end is not part of it. Default: the empty password.",
)
def recover(invocation: Invocation, ledger_id: int, metadata: str | None, password_file: BinaryIO | None) -> int:
    """Close a ledger whose writer is gone: fence it, find its last entry, make all entries up to there durable.

    A writer that is still alive can write no more to it, for good. A ledger that is closed stays as it is. When too
    few bookies answer to prove the end, the ledger stays in recovery; run this again when they are back.

    A ledger of records that its log still orders is refused: boki log roll ends that first.
    """
    password = b"" if password_file is None else password_file.read().removesuffix(b"\n")
    return run_with_ledgers(
        invocation, metadata, lambda client, store: _recover(invocation, client, store, ledger_id, password)
    )


async def _recover(
    invocation: Invocation, client: LedgerClient, store: MetadataStore, ledger_id: int, password: bytes
) -> None:
    from boki_cli.logs.data_ledger import recover_ledger

    found = await client.metadata_of(ledger_id)
    before = found.state.name
    await recover_ledger(store, client, ledger_id, found, password=password)
    after = await client.metadata_of(ledger_id)
    if invocation.json:
        invocation.emit({"ledger_id": ledger_id, "found": before, **_end_of(after)})
        return
    entries = f"{after.last_entry + 1:,} entries, {after.length:,} bytes"
    if before == after.state.name:
        click.echo(f"ledger {ledger_id} was closed already: {entries}")
    else:
        click.echo(f"ledger {ledger_id} was {before}; it is fenced, and closed with {entries}")


def _end_of(metadata: LedgerMetadata) -> dict[str, Any]:
    return {"state": metadata.state.name, "last_entry": metadata.last_entry, "length_bytes": metadata.length}


@command(None, "delete", writes=True, short_help="Delete a ledger for good.")
@LEDGER_ID
@metadata_option
@YES
@click.option("--force", is_flag=True, help="Also a ledger that a log needs: its records are lost.")
def delete(invocation: Invocation, ledger_id: int, metadata: str | None, yes: bool, force: bool) -> int:
    """Delete a ledger, whatever its state. Bookies give its space back at their next garbage collections.

    Asks on a terminal; elsewhere --yes is needed. A ledger that a log needs is refused without --force.
    """
    found: list[LedgerMetadata] = []

    async def look(client: LedgerClient, store: MetadataStore) -> None:
        found.append(await client.metadata_of(ledger_id))
        if not force:
            await _check_unneeded(store, ledger_id, found[0])

    run_with_ledgers(invocation, metadata, look)
    if not yes and not _confirmed(invocation, ledger_id, found[0]):
        invocation.say("Nothing was deleted.")
        return exit_codes.REFUSED
    run_with_ledgers(invocation, metadata, lambda client, _: client.delete(ledger_id))
    if invocation.json:
        invocation.emit({"ledger_id": ledger_id, "deleted": True, "was": _end_of(found[0])})
    else:
        click.echo(f"ledger {ledger_id} is deleted")
    return exit_codes.OK


async def _check_unneeded(store: MetadataStore, ledger_id: int, metadata: LedgerMetadata) -> None:
    from boki_cli.logs.ledger_names import what_names

    named = await what_names(store, ledger_id, metadata)
    if named:
        raise LedgerError(
            f"ledger {ledger_id} is needed: {'; '.join(named)}. Deleting it loses records for good; --force does it",
            ledger_id=ledger_id,
        )


def _confirmed(invocation: Invocation, ledger_id: int, metadata: LedgerMetadata) -> bool:
    entries = f"{metadata.last_entry + 1:,} entries" if metadata.state.name == "CLOSED" else "its end is not known"
    question = f"Delete ledger {ledger_id} ({metadata.state.name}, {entries}) for good?"
    return invocation.confirm(question, lost=f"ledger {ledger_id} cannot be restored")
