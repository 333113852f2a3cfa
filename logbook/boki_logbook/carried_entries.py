"""Finds in a metalog the entries that it carries, for who does not find them in their data ledger (ADR 21).

An engine writes a carried entry to its data ledger a little after the metalog ordered it, at most `limits.CARRIED_BEHIND` of
them late. One that died, or that is stopped, leaves its last ones in the metalog alone. There they are looked for, from its end
backwards: by whoever closes the data ledger, which makes it whole, and until then by whoever reads such an entry.

Nothing is kept: that is rare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from boki_common.errors import BokiError
from boki_common.ids import term_of
from boki_common.logs import get_logger
from boki_common.record_batch import RecordBatch
from boki_logbook.places import EntryPlace, ShardPlace
from boki_logbook.ports import DataLedgers
from boki_metalog.metalog_entry import decode

READ_ENTRIES: Final = 64

_log = get_logger("engine.carried")


class Metalog(NamedTuple):
    """A term's metalog ledger, of which entries below `stop` are known to be acknowledged."""

    ledger_id: int
    stop: int


class CarriedEntries:
    """See the module."""

    def __init__(
        self,
        ledgers: DataLedgers,
        *,
        metalog: Callable[[int], Metalog | None],
        shards: Callable[[int], Mapping[int, ShardPlace]],
    ) -> None:
        """Both by term; `metalog`: None when it is not known."""
        self._ledgers = ledgers
        self._metalog = metalog
        self._shards = shards

    async def find(self, term: int, shard: int, first: int, stop: int) -> dict[int, bytes]:
        """The payloads of those entries first … stop - 1 of a shard that the metalog carries.

        Raises:
            BokiError: the metalog cannot be read now, or ever.
        """
        found: dict[int, bytes] = {}
        metalog = self._metalog(term)
        if metalog is None or first >= stop:
            return found
        reader = await self._ledgers.open(metalog.ledger_id, recover=False)
        try:
            reader.confirm(metalog.stop - 1)
            end, seen = metalog.stop, False
            while end > 0:
                begin = max(end - READ_ENTRIES, 0)
                for payload in reversed(await reader.read(begin, end - 1)):
                    entry = decode(payload)
                    entries_end = next((one.entries_end for one in entry.shards if one.shard == shard), None)
                    if (seen and entries_end is None) or (entries_end is not None and entries_end <= first):
                        return found
                    seen = entries_end is not None
                    if entries_end is not None and entries_end <= stop:
                        found.update((entries_end - 1, one.body) for one in entry.carried if one.shard == shard)
                end = begin
        finally:
            await reader.close()
        return found

    async def batch_at(self, place: EntryPlace) -> RecordBatch | None:
        """The entry at a place, if the metalog carries it, and can be read now."""
        term = term_of(place.first_seqnum)
        numbers = [number for number, shard in self._shards(term).items() if shard.ledger_id == place.ledger_id]
        try:
            for number in numbers:
                for body in (await self.find(term, number, place.entry, place.entry + 1)).values():
                    return RecordBatch.parse(memoryview(body))
        except BokiError as error:
            _log.warning("the metalog cannot be looked at", term=term, ledger_id=place.ledger_id, error=error)
        return None
