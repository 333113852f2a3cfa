"""What the commands of `boki ledger` share: a ledger client on the bookies that the metadata store names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import click

from boki_cli.cluster.metadata_option import run_on_metadata
from boki_cli.number_types import Whole
from boki_cli.options import Invocation

if TYPE_CHECKING:
    from boki_common.metadata.store import MetadataStore
    from boki_ledger.client import LedgerClient

ROLE: Final = "boki.role"
"""Name of the custom value in the metadata of a ledger that a log made."""
LEDGER_ID: Final = click.argument("ledger_id", type=Whole(0), metavar="ID")


def run_with_ledgers(
    invocation: Invocation,
    metadata: str | None,
    use: Callable[[LedgerClient, MetadataStore], Awaitable[None]],
) -> int:
    """Runs `use(client, store)` in a loop of its own. Nothing is created in the metadata store."""
    from boki_cli import roles

    async def run(parts: roles.Parts, settings: roles.ProcessSettings) -> None:
        async with roles.ledger_client(parts, settings) as client:
            await use(client, parts.metadata)

    return run_on_metadata(invocation, metadata, run)
