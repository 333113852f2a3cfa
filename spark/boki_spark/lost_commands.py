"""LOST commands that change what an index snapshot has: looked for before its terms are named by their records."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from boki_common.errors import NoSuchEntry
from boki_common.metadata.store import MetadataStore
from boki_common.runtime.ports import Buffer
from boki_ledger.client import LedgerClient
from boki_logbook.scan.metalogs import terms_in
from boki_logbook.state.snapshot_rules import SnapshotNode
from boki_metalog.entries.metalog_entry import Lost, decode

READ_ENTRIES: Final = 64


async def lost_since(store: MetadataStore, ledgers: LedgerClient, node: SnapshotNode) -> AsyncIterator[Lost]:
    """LOST commands that are ordered behind an index snapshot, of all logs. Raises BokiError."""
    points = {point.log: point for point in node.logs}
    for one in sorted(await terms_in(store), key=lambda one: (one.log, one.term)):
        if one.reclaimed:
            continue
        point = points.get(one.log)
        first = 0
        if point is not None:
            if one.term < point.term or (one.term == point.term and point.ended):
                continue
            first = point.entry if one.term == point.term else 0
        async for lost in _lost_of(ledgers, one.metalog_ledger, first, one.end):
            yield lost


async def _lost_of(ledgers: LedgerClient, ledger_id: int, first: int, stop: int | None) -> AsyncIterator[Lost]:
    """LOST commands of a metalog. `stop`: None while it goes on; then what bookies have, whether or not it is known to be ordered:
    who refuses for what may be ordered is never wrong for long."""
    reader = await ledgers.open(ledger_id, recover=False)
    try:
        known = await reader.read_lac() + 1 if stop is None else stop
        if stop is not None:
            reader.confirm(stop - 1)
        for at in range(first, known, READ_ENTRIES):
            for payload in await reader.read(at, min(at + READ_ENTRIES, known) - 1):
                for lost in _lost_in(payload):
                    yield lost
        while stop is None:
            try:
                (payload,) = await reader.read_unconfirmed(known, known)
            except NoSuchEntry:
                return
            for lost in _lost_in(payload):
                yield lost
            known += 1
    finally:
        await reader.close()


def _lost_in(payload: Buffer) -> list[Lost]:
    return [command for command in decode(payload).commands if isinstance(command, Lost)]
