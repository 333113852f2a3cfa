"""Transactional JSON objects on a LogBook.

    store = BokiStore(client.book("shop"))
    x = store.object("x")
    await x.set("a.b", 1); await x.inc("n"); await x.push("last", "e", limit=24)

    @store.transactional()
    async def move(tx: Transaction, source: str, target: str, amount: int) -> None: ...

- Operations on one object are one record each, without a condition: two never disturb each other.
- Transactions are serializable, or see a snapshot; they see their own writes, and are run again while they lose. Those that a process
  runs at the same time commit as one record. Snapshots read a consistent past and append nothing.
- Views in aux data and in this process are caches. Checkpoints replace old history, which is then trimmed.
- `store.collection("user", User)` is typed, and can be scanned. `bokistore.sync` is the same without an event loop.
"""

from bokilib.records.codec import Json, JsonObject
from bokilib.records.isolation import Isolation
from bokistore.commit.transactions import Transaction, TxObject
from bokistore.errors import (
    AlreadyExists,
    HistoryMissing,
    InTransaction,
    NoSuchObject,
    OperationFailed,
    ResultUnknown,
    TransactionTimeout,
)
from bokistore.model.operations import (
    MISSING,
    AnyOperation,
    Change,
    Delete,
    Inc,
    MakeArray,
    MakeObject,
    Merge,
    Missing,
    Pop,
    Push,
    Set,
)
from bokistore.objects import Collection, StoreObject, TxCollection
from bokistore.read.inspection import Version, Watched
from bokistore.read.snapshot_reads import Snapshot
from bokistore.store import BokiStore, StoreSettings

__all__ = [
    "AlreadyExists",
    "AnyOperation",
    "BokiStore",
    "Change",
    "Collection",
    "Delete",
    "HistoryMissing",
    "InTransaction",
    "Inc",
    "Isolation",
    "Json",
    "JsonObject",
    "MISSING",
    "MakeArray",
    "MakeObject",
    "Merge",
    "Missing",
    "NoSuchObject",
    "OperationFailed",
    "Pop",
    "Push",
    "ResultUnknown",
    "Set",
    "Snapshot",
    "StoreObject",
    "StoreSettings",
    "Transaction",
    "TransactionTimeout",
    "TxCollection",
    "TxObject",
    "Version",
    "Watched",
]
