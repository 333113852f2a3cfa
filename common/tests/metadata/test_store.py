"""`ensure_path`, the one function beside the port itself; the port's promises are in `test_contract.py`."""

from __future__ import annotations

from boki_common.metadata.memory import MemoryStore
from boki_common.metadata.store import Versioned, ensure_path


async def test_missing_parents_are_made_and_others_stay() -> None:
    store = MemoryStore()
    await store.start()
    await store.create("/a", b"kept")
    await ensure_path(store, "/a/b/c")
    await ensure_path(store, "/a/b/c")
    assert await store.get("/a") == Versioned(b"kept", 0)
    assert await store.get("/a/b/c") == Versioned(b"", 0)
    await store.close()
