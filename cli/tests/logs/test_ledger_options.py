"""What the commands of `boki ledger` share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from boki_cli.logs.ledger_options import run_with_ledgers
from boki_cli.options import Invocation

if TYPE_CHECKING:
    from boki_common.metadata.store import MetadataStore
    from boki_ledger.client import LedgerClient


async def look(client: LedgerClient, store: MetadataStore) -> None:
    assert await store.children("/") == []


def test_a_client_of_what_the_metadata_names(tmp_path: Path) -> None:
    (tmp_path / "metadata.db").touch()
    assert run_with_ledgers(Invocation(), f"sqlite://{tmp_path}/metadata.db", look) == 0
