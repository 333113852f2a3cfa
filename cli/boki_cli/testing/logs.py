"""For tests of commands on a cluster in processes: its settings with one copy, and the state of its logs.

`snapshot_reaching` and `closed_data_ledger` wait for and read what engines leave in the metadata store; they change nothing.
`log_with_carried` writes by hand what an engine leaves that dies with entries that only its metalog has.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from typing import Final, NamedTuple

from boki_cli.logs.data_ledger import DATA_ROLE, INCARNATION
from boki_cli.logs.ledger_options import ROLE
from boki_common.bookkeeper.ledger_metadata import LedgerState
from boki_common.metadata.open import open_store
from boki_common.metadata.store import MetadataStore
from boki_common.runtime.process import SystemRandom
from boki_ledger.client import LedgerClient
from boki_ledger.settings import LedgerSettings
from boki_ledger.write.writer import LedgerWriter
from boki_logbook.state.snapshot_rules import SNAPSHOT_PATH, SnapshotNode, decode_node
from boki_logbook.testing.cluster import RunSpec, make_batch, plain_records
from boki_metalog.entries.metalog_entry import Carried, MetalogEntry, Open, ShardEnd, encode
from boki_metalog.terms.metadata_tree import create_record, read_view
from boki_metalog.terms.term_record import record_of
from boki_metalog.terms.view import VIEW_PATH, encode_view

ONE_COPY: Final = {
    "BOKI_SEQUENCER_REPLICAS": "1",
    "BOKI_SEQUENCER_ACKS": "1",
    "BOKI_ENGINE_REPLICAS": "1",
    "BOKI_ENGINE_ACKS": "1",
    "BOKI_ENGINE_HOUSEKEEPING_S": "0.05",
}
"""Environment of roles with one bookie, and engines that write index snapshots at once."""


@asynccontextmanager
async def ledgers_of(
    uri: str, settings: LedgerSettings | None = None
) -> AsyncIterator[tuple[MetadataStore, LedgerClient]]:
    """The metadata store of a cluster, and a ledger client on it."""
    store = open_store(uri)
    await store.start()
    ledgers = LedgerClient(metadata=store, rng=SystemRandom(), settings=settings or LedgerSettings())
    try:
        await ledgers.start()
        yield store, ledgers
    finally:
        await ledgers.close()
        await store.close()


async def closed_data_ledger(uri: str) -> int:
    """The first ledger of records that is closed."""
    async with ledgers_of(uri) as (_, ledgers):
        for ledger_id in await ledgers.list():
            found = await ledgers.metadata_of(ledger_id)
            if dict(found.custom).get("boki.role") == b"data" and found.state is LedgerState.CLOSED:
                return ledger_id
    raise AssertionError("no ledger of records is closed")


async def snapshot_reaching(uri: str, term: int) -> SnapshotNode:
    """The index snapshot, once it has the term to its end."""
    async with ledgers_of(uri) as (store, _):
        with closing(store.watch(SNAPSHOT_PATH)) as watch:
            while True:
                if await store.exists(SNAPSHOT_PATH):
                    node = decode_node((await store.get(SNAPSHOT_PATH)).value)
                    if node.covers(term, 0):
                        return node
                await watch.changed()


ENGINE: Final = "ab" * 16
"""The incarnation of the engine of `log_with_carried`."""


class LogWithCarried(NamedTuple):
    """Shard 0 of term 1 of log 0: entry 0 was written, entries 1 and 2 are carried. One record in each."""

    data: LedgerWriter
    metalog: LedgerWriter
    payloads: list[bytes]


async def log_with_carried(
    store: MetadataStore, ledgers: LedgerClient, *, ended: bool, spoilt: Mapping[int, bytes] = {}
) -> LogWithCarried:
    """Makes such a log. `ended`: its term is sealed, else its metalog is open. `spoilt`: what some entries hold instead."""
    batches = [make_batch(RunSpec(1, bytes(16), number + 1, plain_records(f"record {number}"))) for number in range(3)]
    payloads = [b"".join(batch.at(1, 0, number)) for number, batch in enumerate(batches)]
    for number, payload in spoilt.items():
        payloads[number] = payload
    data = await ledgers.create(custom={ROLE: DATA_ROLE, INCARNATION: ENGINE.encode()})
    await data.append(payloads[0])
    metalog = await ledgers.create(custom={ROLE: b"metalog"})
    entries = [
        MetalogEntry(0, 0, 1, (ShardEnd(0, 0, 0),), (Open(0, ENGINE, data.ledger_id),)),
        MetalogEntry(0, 1, 2, (ShardEnd(0, 1, 1),)),
        *(
            MetalogEntry(at, at + 1, 3, (ShardEnd(0, at + 1, at + 1),), (), (Carried(0, payloads[at]),))
            for at in (1, 2)
        ),
        MetalogEntry(3, 3, 4, (ShardEnd(0, 3, 3),)),
    ]
    for entry in entries:
        await metalog.append(encode(entry))
    view, version = await read_view(store)
    view = view.with_term(0, ledger_id=metalog.ledger_id, sequencer="s", token="t", start_time_ms=0)
    await store.set(VIEW_PATH, encode_view(view), version=version)
    if ended:
        await metalog.close()
        installed = view.installed(0)
        assert installed is not None
        await create_record(store, record_of(0, installed, view.slots_of(0), len(entries) - 1, entries[-1]))
    return LogWithCarried(data, metalog, payloads)
