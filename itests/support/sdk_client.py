"""What tests of the SDK do to a client, and ask of its records."""

from __future__ import annotations

import boki
from boki_common.errors import ConnectionLost


def present(record: boki.Record | None) -> boki.Record:
    """The record that was read; fails when there is none."""
    assert record is not None
    return record


async def collect(records: boki.RecordIterator) -> list[boki.Record]:
    """All records of an iterator that ends, and has no gap."""
    items = [item async for item in records]
    assert not any(isinstance(item, boki.Gap) for item in items)
    return [item for item in items if isinstance(item, boki.Record)]


def cut(client: boki.Client) -> None:
    """Breaks its connection, without a word to the engine: answers on their way are lost."""
    connection = client._connection
    assert connection is not None and connection.peer is not None
    connection.peer.connection.abort(ConnectionLost("cut by the test"))
