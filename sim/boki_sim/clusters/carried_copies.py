"""What a metalog carries, by where it belongs: the data ledgers must store the same there in the end.

Pure. It reads entries as they are stored, and asks nothing of the code under test but to decode them.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from boki_common.runtime.ports import Buffer
from boki_metalog.entries.metalog_entry import Open, decode


def carried_in(payloads: Iterable[Buffer]) -> dict[tuple[int, int], int]:
    """(data ledger, entry) → checksum of what is carried, by the entries of one metalog from its first one on. Raises
    ProtocolError, VersionMismatch: one is no metalog entry."""
    ledgers: dict[int, int] = {}
    carried: dict[tuple[int, int], int] = {}
    for payload in payloads:
        entry = decode(payload)
        ledgers.update((one.shard, one.ledger_id) for one in entry.commands if isinstance(one, Open))
        if entry.carried:
            ends = {one.shard: one.entries_end for one in entry.shards}
            carried.update(((ledgers[one.shard], ends[one.shard] - 1), crc32(one.body)) for one in entry.carried)
    return carried
