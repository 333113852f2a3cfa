"""Whether an entry of a data ledger is the one that the metalog means. Pure.

A cut names entries by shard and number, and says how many records they have together. Each entry says itself of which shard it is,
and from which record on. Where these disagree, the entry is as good as not there: it is waited for, and may be given up, as one
that cannot be read. Whoever reads the log decides so in the same way, by the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, cast

from boki_common.records.record_batch import RecordBatch
from boki_metalog.entries.progress import ShardRange


class Fit(NamedTuple):
    """What an entry has to be.

    Attributes:
        first_record: of the shard, where it begins; `after_lost`: or later, because how many records those before it had is not
            known.
        stop_record: where its cut ends; `last`: it is the cut's last one of the shard, so it has to end there.
    """

    term: int
    shard: int
    first_record: int
    stop_record: int
    last: bool
    after_lost: bool

    def fault_of(self, batch: RecordBatch) -> str | None:
        """Why it is not this entry; None: it is."""
        if (batch.term, batch.shard) != (self.term, self.shard):
            return (
                f"expected an entry of shard {self.shard} of term {self.term}, found one of shard {batch.shard} of term "
                f"{batch.term}"
            )
        first, stop = batch.first_local_id, batch.first_local_id + batch.record_count
        if not self.has(first, stop):
            begins = "or later " if self.after_lost else ""
            ends = "ends" if self.last else "ends at the latest"
            return (
                f"expected an entry that begins at record {self.first_record} {begins}of its shard and {ends} before "
                f"{self.stop_record}, found records {first} to below {stop}"
            )
        return None

    def has(self, first: int, stop: int) -> bool:
        """Whether records `first` to below `stop` of the shard may be the entry's."""
        begins = first == self.first_record or (self.after_lost and first > self.first_record)
        return begins and (stop == self.stop_record if self.last else stop <= self.stop_record)


make_fit: Final = cast(Callable[[tuple[int, int, int, int, bool, bool]], Fit], partial(tuple.__new__, Fit))
"""`Fit` without a frame of Python, for what runs per entry."""


class RangeWalk:
    """The entries of one range of a cut, one after another, for who reads them to find what is wrong with them."""

    def __init__(self, term: int, one: ShardRange) -> None:
        self._term = term
        self._range = one
        self._record = one.first_record
        self._entry = one.first_entry
        self._after_lost = False

    def fault_of(self, batch: RecordBatch) -> str | None:
        """Why a batch cannot be the next entry; None: it can."""
        one = self._range
        fit = Fit(
            self._term,
            one.shard,
            self._record,
            one.first_record + one.record_count,
            self._entry == one.first_entry + one.entry_count - 1,
            self._after_lost,
        )
        return fit.fault_of(batch)

    def take(self, batch: RecordBatch | None) -> None:
        """The next entry is this one; None: nobody can have it."""
        self._entry += 1
        self._after_lost = batch is None
        if batch is not None:
            self._record = batch.first_local_id + batch.record_count
