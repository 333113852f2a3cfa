"""What an administrator does to the logs of a cluster of processes, and what they hold at its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import boki
from boki_common.metadata.open import open_store
from boki_common.metadata.store import MetadataStore
from boki_common.runtime.process import SystemRandom
from boki_common.runtime.token_file import token_of
from boki_ledger.client import LedgerClient
from boki_metalog.control.log_changes import LogChanges
from boki_metalog.terms.metadata_tree import read_view
from boki_metalog.terms.view import View

Row = tuple[int, bytes, tuple[str | int, ...]]


class Administrator:
    """Changes logs, and looks at the view."""

    def __init__(self, changes: LogChanges, metadata: MetadataStore) -> None:
        self.changes = changes
        self._metadata = metadata

    async def view(self) -> View:
        return (await read_view(self._metadata)).view


@asynccontextmanager
async def administrator(
    metadata_uri: str, *, retry_for_s: float = 30.0, token_file: Path | str = ""
) -> AsyncIterator[Administrator]:
    token = await token_of(str(token_file))
    store = open_store(metadata_uri)
    await store.start()
    rng = SystemRandom()
    ledgers = LedgerClient(metadata=store, rng=rng, token=token)
    try:
        await ledgers.start()
        yield Administrator(LogChanges(store, ledgers, rng, retry_for_s=retry_for_s, token=token), store)
    finally:
        await ledgers.close()
        await store.close()


async def rows_of(client: boki.Client, books: Sequence[str]) -> dict[str, list[Row]]:
    """All records of each book, in order."""
    found: dict[str, list[Row]] = {}
    for name in books:
        found[name] = []
        async for record in client.book(name).read():
            assert isinstance(record, boki.Record), f"{name} has a gap: {record}"
            found[name].append((record.seqnum, record.data, record.tags))
    return found
