"""Records that a test expects to be there, and all that are."""

from __future__ import annotations

import boki


def present(record: boki.Record | None) -> boki.Record:
    """The record that was read; fails when there is none."""
    assert record is not None
    return record


async def collect(records: boki.RecordIterator) -> list[boki.Record]:
    """All records of an iterator that ends, and has no gap."""
    items = [item async for item in records]
    assert not any(isinstance(item, boki.Gap) for item in items)
    return [item for item in items if isinstance(item, boki.Record)]
