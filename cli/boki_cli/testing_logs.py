"""For tests of commands on a cluster in processes: its settings with one copy, and what its logs have come to.

`snapshot_reaching` and `closed_data_ledger` wait for and read what engines leave in the metadata store; they change nothing.
"""

from __future__ import annotations

from typing import Final

from boki_common.bookkeeper.ledger_metadata import LedgerState
from boki_common.metadata.open import open_store
from boki_common.runtime.process import SystemRandom
from boki_ledger.client import LedgerClient
from boki_logbook.snapshot_rules import SNAPSHOT_PATH, SnapshotNode, decode_node

ONE_COPY: Final = {
    "BOKI_SEQUENCER_REPLICAS": "1",
    "BOKI_SEQUENCER_ACKS": "1",
    "BOKI_ENGINE_REPLICAS": "1",
    "BOKI_ENGINE_ACKS": "1",
    "BOKI_ENGINE_HOUSEKEEPING_S": "0.05",
}
"""Environment of roles with one bookie, and engines that write index snapshots at once."""


async def closed_data_ledger(uri: str) -> int:
    """The first ledger of records that is closed."""
    store = open_store(uri)
    await store.start()
    ledgers = LedgerClient(metadata=store, rng=SystemRandom())
    await ledgers.start()
    try:
        for ledger_id in await ledgers.list():
            found = await ledgers.metadata_of(ledger_id)
            if dict(found.custom).get("boki.role") == b"data" and found.state is LedgerState.CLOSED:
                return ledger_id
        raise AssertionError("no ledger of records is closed")
    finally:
        await ledgers.close()
        await store.close()


async def snapshot_reaching(uri: str, term: int) -> SnapshotNode:
    """The index snapshot, once it has the term to its end."""
    store = open_store(uri)
    await store.start()
    watch = store.watch(SNAPSHOT_PATH)
    try:
        while True:
            if await store.exists(SNAPSHOT_PATH):
                node = decode_node((await store.get(SNAPSHOT_PATH)).value)
                if node.covers(term, 0):
                    return node
            await watch.changed()
    finally:
        watch.close()
        await store.close()
