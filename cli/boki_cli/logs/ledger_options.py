"""What the commands of `boki ledger` share: a ledger client on the bookies that the metadata store names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import click

from boki_cli import exit_codes
from boki_cli.cluster.metadata_option import found_settings
from boki_cli.number_types import Whole
from boki_cli.options import Invocation
from boki_common.runtime import process

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

    settings = found_settings(invocation, metadata)

    async def main() -> int:
        async with roles.open_metadata(settings) as parts, roles.ledger_client(parts, settings) as client:
            await use(client, parts.metadata)
        return exit_codes.OK

    return process.run_command(main)
