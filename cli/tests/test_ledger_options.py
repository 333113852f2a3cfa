"""What the commands of `boki ledger` share: they look for a cluster, and make none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from boki_cli.ledger_options import run_with_ledgers
from boki_cli.options import Invocation
from boki_common.errors import SettingsError

if TYPE_CHECKING:
    from boki_common.metadata.store import MetadataStore
    from boki_ledger.client import LedgerClient


async def look(client: LedgerClient, store: MetadataStore) -> None:
    assert await store.children("/") == []


def test_nothing_is_created(tmp_path: Path) -> None:
    assert run_with_ledgers(Invocation(), f"sqlite://{tmp_path}/metadata.db", look) == 0


def test_metadata_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BOKI_METADATA", raising=False)
    with pytest.raises(SettingsError, match="--metadata"):
        run_with_ledgers(Invocation(), None, look)
