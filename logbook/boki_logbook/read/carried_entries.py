"""Finds in a metalog the entries that it carries, for who does not find them in their data ledger (ADR 21).

An engine writes a carried entry to its data ledger a little after the metalog ordered it, at most `limits.CARRIED_BEHIND` of
them late. One that died, or that is stopped, leaves its last ones in the metalog alone. There they are looked for: by whoever
closes the data ledger, which makes it whole, from where the shard ends backwards; until then by whoever reads such an entry, whose
position says where to look, in as many steps as the length of the metalog has digits.

Of shards that ended it is kept where that was, of a few; else nothing: all of this is rare.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from boki_common.errors import BokiError
from boki_common.ids import pos_of, term_of
from boki_common.logs import get_logger
from boki_common.records.record_batch import RecordBatch
from boki_ledger.ledgers import Ledgers
from boki_logbook.index.places import EntryPlace, ShardPlace
from boki_metalog.entries.metalog_entry import MetalogEntry, decode

READ_ENTRIES: Final = 64
ENDS_KEPT: Final = 1_024

_log = get_logger("engine.carried")


class Metalog(NamedTuple):
    """A term's metalog ledger, of which entries below `stop` are known to be acknowledged."""

    ledger_id: int
    stop: int


class CarriedEntries:
    """See the module."""

    def __init__(
        self,
        ledgers: Ledgers,
        *,
        metalog: Callable[[int], Metalog | None],
        shards: Callable[[int], Mapping[int, ShardPlace]],
    ) -> None:
        """Both by term; `metalog`: None when it is not known."""
        self._ledgers = ledgers
        self._metalog = metalog
        self._shards = shards
        self._ends: OrderedDict[tuple[int, int], int] = OrderedDict()
        """Term and shard → the metalog entry behind the last one that has it; at most `ENDS_KEPT`."""

    async def find(self, term: int, shard: int, first: int, stop: int) -> dict[int, bytes]:
        """The payloads of those entries first … stop - 1 of a shard that the metalog carries. Raises BokiError: the metalog
        cannot be read now, or ever."""
        found: dict[int, bytes] = {}
        metalog = self._metalog(term)
        if metalog is None or first >= stop:
            return found
        reader = await self._ledgers.open(metalog.ledger_id, recover=False)
        try:
            reader.confirm(metalog.stop - 1)
            end, seen = self._ends.get((term, shard), metalog.stop), False
            while end > 0:
                begin = max(end - READ_ENTRIES, 0)
                payloads = await reader.read(begin, end - 1)
                for number in range(end - 1, begin - 1, -1):
                    entry = decode(payloads[number - begin])
                    entries_end = next((one.entries_end for one in entry.shards if one.shard == shard), None)
                    if (seen and entries_end is None) or (entries_end is not None and entries_end <= first):
                        return found
                    if entries_end is not None and not seen and number + 1 < metalog.stop:
                        self._ended(term, shard, number + 1)
                    seen = entries_end is not None
                    if entries_end is not None and entries_end <= stop:
                        found.update((entries_end - 1, one.body) for one in entry.carried if one.shard == shard)
                end = begin
        finally:
            await reader.close()
        return found

    def _ended(self, term: int, shard: int, stop: int) -> None:
        """The shard is in no metalog entry from `stop` on, and was before: it is in none that comes."""
        self._ends[term, shard] = stop
        if len(self._ends) > ENDS_KEPT:
            self._ends.popitem(last=False)

    async def _entry_of(self, metalog: Metalog, pos: int) -> MetalogEntry | None:
        """The metalog entry that ordered a position. Raises BokiError."""
        reader = await self._ledgers.open(metalog.ledger_id, recover=False)
        try:
            reader.confirm(metalog.stop - 1)
            low, high = 0, metalog.stop
            while low < high:
                middle = (low + high) // 2
                (payload,) = await reader.read(middle, middle)
                entry = decode(payload)
                if pos < entry.start_pos:
                    high = middle
                elif pos >= entry.end_pos:
                    low = middle + 1
                else:
                    return entry
        finally:
            await reader.close()
        return None

    async def batch_at(self, place: EntryPlace) -> RecordBatch | None:
        """The entry at a place, if the metalog carries it, and can be read now."""
        term = term_of(place.first_seqnum)
        numbers = [number for number, shard in self._shards(term).items() if shard.ledger_id == place.ledger_id]
        metalog = self._metalog(term)
        if metalog is None or not numbers:
            return None
        try:
            entry = await self._entry_of(metalog, pos_of(place.first_seqnum))
            if entry is None:
                return None
            ends = {one.shard: one.entries_end for one in entry.shards}
            for shard, body in entry.carried:
                if shard in numbers and ends[shard] == place.entry + 1:
                    return RecordBatch.parse(memoryview(body))
        except BokiError as error:
            _log.warning("the metalog cannot be looked at", term=term, ledger_id=place.ledger_id, error=error)
        return None
