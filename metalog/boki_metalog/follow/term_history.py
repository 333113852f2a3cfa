"""The records of sealed terms, read once and kept: what each log ordered, and which terms a term comes after (`term_order`).

Records are created before the view drops their term (DESIGN §8). So once the view was seen to name term t, the records of
all terms below t that share a slot or the log with it are there to be read.

Who needs some slots only looks at these: terms before another one for them, logs that ever had one of them.

One for all followers of a process. Bounded by the number of terms.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator

from boki_common.errors import NoNode
from boki_common.metadata.store import MetadataStore
from boki_metalog.terms.metadata_tree import read_record
from boki_metalog.terms.term_order import ALL_SLOTS, slot_mask, terms_before
from boki_metalog.terms.term_record import TERMS_PATH, TermRecord
from boki_metalog.terms.view import SlotRange


class TermHistory:
    """See the module. `log_found` is called when a record is the first one of its log, or the first with needed slots."""

    def __init__(
        self, metadata: MetadataStore, *, slots: int = ALL_SLOTS, log_found: Callable[[], None] = lambda: None
    ) -> None:
        """`slots`: those that are needed, as the bits of one number."""
        self._metadata = metadata
        self._log_found = log_found
        self._slots = slots
        self._logs: dict[int, bool] = {}
        """Log that has a sealed term → whether one of them had a needed slot."""
        self._numbers: list[int] = []
        self._records: dict[int, tuple[TermRecord, int]] = {}
        """Term → its record, and its slots as a bit mask."""

    @property
    def numbers(self) -> list[int]:
        """All sealed terms, ascending."""
        return list(self._numbers)

    @property
    def next_term(self) -> int:
        """Above all of them."""
        return self._numbers[-1] + 1 if self._numbers else 1

    @property
    def logs(self) -> list[int]:
        """Logs that have sealed terms, ascending."""
        return sorted(self._logs)

    async def refresh(self) -> None:
        """Reads the records that are new. Raises MetadataUnavailable; CorruptData, VersionMismatch: what cannot be read."""
        try:
            names = await self._metadata.children(TERMS_PATH)
        except NoNode:
            return  # no process has made it yet
        for number in sorted(int(name) for name in names if name.isascii() and name.isdigit()):
            if number in self._records:
                continue
            record = await read_record(self._metadata, number)
            if number not in self._records:  # another follower may have been quicker
                self._records[number] = record, slot_mask(record.slots)
                insort(self._numbers, number)
                needed = not self.foreign(number)
                if record.log not in self._logs or needed > self._logs[record.log]:
                    self._logs[record.log] = needed
                    self._log_found()

    def record(self, term: int) -> TermRecord | None:
        """The record of a sealed term, if it was read."""
        known = self._records.get(term)
        return None if known is None else known[0]

    def had(self, log: int) -> bool:
        """Whether a needed slot was ever in a sealed term of the log; true of every log that has one, if all are needed."""
        return self._logs.get(log, False)

    def foreign(self, term: int) -> bool:
        """Whether the term is known to have ordered no needed slot."""
        known = self._records.get(term)
        return known is not None and self._slots != ALL_SLOTS and not known[1] & self._slots

    def sealed(self, log: int, *, above: int, below: int) -> list[TermRecord]:
        """Records of the log's terms with above < term < below, ascending."""
        numbers = self._numbers[bisect_left(self._numbers, above + 1) : bisect_left(self._numbers, below)]
        records = (self._records[number][0] for number in numbers)
        return [record for record in records if record.log == log]

    def before(self, term: int, log: int, slots: Iterable[SlotRange]) -> tuple[int, ...]:
        """The terms of *other* logs that this one comes directly after for its needed slots, ascending."""
        return terms_before(slot_mask(slots) & self._slots, self._below(term), log)

    def _below(self, term: int) -> Iterator[tuple[int, int, int]]:
        for at in range(bisect_left(self._numbers, term) - 1, -1, -1):
            record, mask = self._records[self._numbers[at]]
            yield record.term, record.log, mask
