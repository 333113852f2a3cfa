"""Headers of entries that other engines push (DESIGN §6.5): the message, and those that wait for their cut. Pure.

    push            (ledger u64 | entry u64 | bytes u32 | header)*

An engine pushes the header of each of its entries once it has its ack quorum, so what an entry says is settled: it may be
used as soon as a cut covers it, and never before. What does not come, or no longer is here, is read from bookies.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from boki_common import limits
from boki_common.errors import ProtocolError
from boki_common.metrics import Counter
from boki_common.records.record_batch import RecordBatch
from boki_common.runtime.ports import Buffer

HEADERS: Final = "headers"
"""HELLO feature: this engine pushes headers to whoever asks for them."""
KEPT_BYTES: Final = 16 * limits.MIB
"""Headers that wait for their cuts; beyond it the oldest go, and are read from bookies should they be needed."""
_KEPT_HEADER_BYTES: Final = 600
"""What keeping one costs besides its bytes, roughly."""

_ITEM: Final = Struct("<QQI")


class AckedEntry(NamedTuple):
    """One entry that has its ack quorum; `batch` does not say its place."""

    entry: int
    first_local_id: int
    batch: RecordBatch


def encode_headers(ledger_id: int, term: int, shard: int, entries: Iterable[AckedEntry]) -> list[Buffer]:
    """The body of a push: some entries of one shard. Columns are not copied."""
    buffers: list[Buffer] = []
    for entry, first_local_id, batch in entries:
        header = batch.header_at(term, shard, first_local_id)
        buffers += (_ITEM.pack(ledger_id, entry, sum(map(len, header))), *header)
    return buffers


def decode_headers(body: memoryview) -> Iterator[tuple[int, int, RecordBatch]]:
    """(Ledger, entry, header as a batch without data) of each item; headers are copied out of the buffer. Raises ProtocolError:
    an item does not fit into the body, or holds no header of a batch."""
    at = 0
    while at < len(body):
        if len(body) - at < _ITEM.size:
            raise ProtocolError(f"expected an item of {_ITEM.size} bytes, found the last {len(body) - at} of a push")
        ledger_id, entry, size = _ITEM.unpack_from(body, at)
        at += _ITEM.size
        if size > len(body) - at:
            raise ProtocolError(
                f"expected a header of {size} bytes, found {len(body) - at} left in a push", expected=size
            )
        yield ledger_id, entry, RecordBatch.parse(memoryview(bytes(body[at : at + size])), header_only=True)
        at += size


class PushedHeaders:
    """Invariant: `used_bytes` is what those kept cost, and at most `limit_bytes`; none is kept that was asked for already."""

    def __init__(self, limit_bytes: int = KEPT_BYTES, *, taken: Counter | None = None) -> None:
        self.limit_bytes = limit_bytes
        self._taken = taken
        self.used_bytes = 0
        self._kept: OrderedDict[tuple[int, int], RecordBatch] = OrderedDict()
        self._asked: dict[int, int] = {}
        """Ledger → the entry behind the last one asked for."""

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, ledger_id: int, entry: int, batch: RecordBatch) -> None:
        """Keeps one, unless it comes too late; of those that are here the oldest go, where it is too much."""
        key = ledger_id, entry
        if entry < self._asked.get(ledger_id, 0) or key in self._kept:
            return
        self._kept[key] = batch
        self.used_bytes += _cost(batch)
        while self.used_bytes > self.limit_bytes:
            _, dropped = self._kept.popitem(last=False)
            self.used_bytes -= _cost(dropped)

    def take(self, ledger_id: int, entry: int) -> RecordBatch | None:
        """The header, if it is here; asked for once, in the order of the ledger's entries."""
        self._asked[ledger_id] = entry + 1
        batch = self._kept.pop((ledger_id, entry), None)
        if batch is not None:
            self.used_bytes -= _cost(batch)
            if self._taken is not None:
                self._taken.inc()
        return batch

    def over(self, ledger_id: int) -> None:
        """Nothing more will be asked for of the ledger."""
        self._asked.pop(ledger_id, None)
        for key in [key for key in self._kept if key[0] == ledger_id]:
            self.used_bytes -= _cost(self._kept.pop(key))


def _cost(batch: RecordBatch) -> int:
    return len(batch.header) + _KEPT_HEADER_BYTES
