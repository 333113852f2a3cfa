"""Ledgers that somebody wrote, and who recovers them: what the tests of recovery have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from boki_common.bookkeeper import v2
from boki_common.bookkeeper.digests import CRC32C, master_key
from boki_common.bookkeeper.status import V2Status
from boki_common.runtime.ports import Buffer
from boki_ledger.read.reader import LedgerReader
from boki_ledger.testing.ledgers import Ledgers, turns
from boki_ledger.write.writer import LedgerWriter

NAMES = ("b1", "b2", "b3")


async def written(ledgers: Ledgers, *payloads: bytes) -> LedgerWriter:
    """A ledger on b1, b2, b3 with acknowledged entries."""
    writer = await ledgers.client.create()
    for payload in payloads:
        await writer.append(payload)
    await turns()
    return writer


async def recovered(
    ledgers: Ledgers, ledger_id: int, carried: Mapping[int, Buffer] | None = None, *, floor: int = 0
) -> LedgerReader:
    client = await ledgers.other_client()
    reader = await client.open(ledger_id, recover=True, floor=floor, carried=carried)
    assert reader.closed
    return reader


async def begun(recovery: Coroutine[Any, Any, LedgerReader]) -> asyncio.Task[LedgerReader]:
    """A recovery, as far as it comes without time passing."""
    opening = asyncio.get_running_loop().create_task(recovery)
    await turns()
    return opening


async def payloads_of(reader: LedgerReader) -> list[bytes]:
    if reader.last_entry < 0:
        return []
    return [bytes(payload) for payload in await reader.read(0, reader.last_entry)]


def put(
    ledgers: Ledgers,
    bookie: str,
    ledger_id: int,
    entry_id: int,
    payload: bytes = b"x",
    *,
    lac: int = -1,
    length: int = 1,
) -> None:
    """Stores an entry on a bookie as its writer would have."""
    header = v2.EntryHeader(ledger_id, entry_id, lac, length)
    request = v2.decode_request(memoryview(b"".join(v2.encode_add(header, CRC32C, master_key(b""), [payload])))[4:])
    assert isinstance(request, v2.AddRequest)
    assert ledgers.bookies[bookie].add(request) is V2Status.OK
