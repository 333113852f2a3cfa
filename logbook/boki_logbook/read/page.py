"""A reply to a range read, as it is made: entry after entry in the order of the range, as many as fit. Pure.

A page may hold fewer records than were found and say that more follow: when one does not fit, or the next batch is not at hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from boki_common.engine.engine_protocol import GapKind, GapRow, Query, Token
from boki_common.engine.read_reply import encode_read_reply
from boki_common.records.record_batch import RecordBatch
from boki_common.runtime.ports import Buffer
from boki_logbook.read.cache import BatchCache
from boki_logbook.read.columns import RecordColumns
from boki_logbook.read.gaps import gaps_before
from boki_logbook.read.lookup import Found, Lookup


class Page:
    """See the module. Invariant: the records of `spans` before `next` are in it, but for those that did not fit."""

    def __init__(self, query: Query, found: Found, lookup: Lookup) -> None:
        self.spans, lost = lookup.to_be_had(lookup.spans(found.seqnums))
        self.next = 0
        """The span that is taken next."""
        self._direction: Final = query.direction
        self._found: Final = found
        self._gaps: list[GapRow] = found.gaps
        self._seqnums: Sequence[int] = found.seqnums
        if lost:
            self._gaps = sorted([*found.gaps, *lost])
            self._seqnums = [seqnum for span in self.spans for seqnum in span.seqnums]
        self._columns = RecordColumns(query.max_bytes)

    @property
    def done(self) -> bool:
        """Whether nothing more can be taken."""
        return self._columns.full or self.next == len(self.spans)

    @property
    def shows_nothing_found(self) -> bool:
        """Whether records were found, and none is in it."""
        return bool(self._seqnums) and not self._columns.count

    def take(self, batches: Iterable[RecordBatch | None]) -> None:
        """The batches of the next spans, up to the first not at hand. Raises CorruptData: `next` cannot be decompressed."""
        for batch in batches:
            if batch is None or self.done:
                return
            place, seqnums = self.spans[self.next]
            self._columns.add(batch, place.first_seqnum, place.time_ms, seqnums)
            self.next += 1

    def encoded(self, cache: BatchCache, token: Token, covered: int) -> list[Buffer]:
        """The reply. `token`, `covered`: what the index covered when it was searched; a reply must not claim more."""
        more, gaps = self._found.more or self._columns.full or self.next < len(self.spans), self._gaps
        if more and gaps:
            last = self._found.seqnums[-1] if self._found.seqnums else 0
            gaps = gaps_before(
                gaps, self._direction, self._seqnums[self._columns.count - 1] if self._columns.count else last
            )
        return reply_of(cache, token, covered, self._columns, self._seqnums, more=more, gaps=gaps)


def reply_of(
    cache: BatchCache,
    token: Token,
    covered: int,
    columns: RecordColumns,
    seqnums: Sequence[int],
    *,
    more: bool = False,
    gaps: Sequence[GapRow] = (),
) -> list[Buffer]:
    """A reply with these records, the first of those found, and their aux data."""
    return encode_read_reply(
        token,
        covered,
        more=more and (columns.count > 0 or any(gap.kind is GapKind.LOST for gap in gaps)),
        records=columns.finish(),
        gaps=gaps,
        aux=cache.aux_rows(seqnums[: columns.count]) if cache.aux_count else {},
        takes_tags=not columns.count,
    )
