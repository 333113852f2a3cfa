"""Who has to read metalogs past engines: which terms there are, their entries, what is ordered of a data ledger. Runs in a loop.

    for term in await terms_in(store): ...
    async for entry in entries_of(ledgers, term): ...

One way to do it for all who do: verification, recovering a ledger by command, offloading. Of a term that goes on, entries are read
that bookies know to be acknowledged.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from boki_common import limits
from boki_common.errors import CorruptData, NoNode
from boki_common.metadata.store import MetadataStore
from boki_ledger.client import LedgerClient
from boki_metalog.entries.metalog_entry import Close, MetalogEntry, Open, decode
from boki_metalog.follow.term_history import TermHistory
from boki_metalog.terms.metadata_tree import read_record, read_view
from boki_metalog.terms.view import SlotRange

READ_ENTRIES: Final = 64


class Term(NamedTuple):
    """A term. `end`: number of its metalog entries, by its record; None: it goes on."""

    log: int
    term: int
    metalog_ledger: int
    end: int | None
    end_pos: int | None
    reclaimed: bool
    slots: tuple[SlotRange, ...]
    closed_at: int | None
    """The last entry of the metalog ledger, by the record."""


async def terms_in(store: MetadataStore) -> list[Term]:
    """All terms that a metadata store knows, ascending. Raises NoNode: there is no cluster in it."""
    view = (await read_view(store)).view
    history = TermHistory(store)
    await history.refresh()
    terms = {
        one.term: Term(log, one.term, one.metalog_ledger, None, None, False, view.slots_of(log), None)
        for log, one in view.logs.items()
        if one is not None
    }
    for number in history.numbers:
        one = await read_record(store, number)
        terms[number] = Term(
            one.log,
            number,
            one.metalog_ledger,
            one.last_entry + 1,
            one.end_pos,
            one.reclaimed,
            one.slots,
            one.closed_at,
        )
    return [terms[number] for number in sorted(terms)]


async def entries_of(ledgers: LedgerClient, term: Term, *, strict: bool = False) -> AsyncIterator[MetalogEntry]:
    """The metalog entries of a term, as far as they are acknowledged. `strict`: the ledger has to be closed as its record says.

    Raises:
        CorruptData: an entry is none; with `strict` also, the ledger is not closed where it should be. BokiError: as reading.
    """
    reader = await ledgers.open(term.metalog_ledger, recover=False)
    try:
        if strict and term.end is not None and (not reader.closed or reader.last_entry != term.closed_at):
            raise CorruptData(f"expected it closed at entry {term.closed_at}, found it at {reader.last_entry}")
        end = await reader.read_lac() + 1 if term.end is None else term.end
        for begin in range(0, end, READ_ENTRIES):
            for payload in await reader.read(begin, min(begin + READ_ENTRIES, end) - 1):
                yield decode(payload)
    finally:
        await reader.close()


class Ordered(NamedTuple):
    """A data ledger as its metalog has it.

    Attributes:
        stop: entries that are ordered.
        ended: no more will be.
        carried: payloads of the last ones that the metalog carries, by entry.
    """

    log: int
    term: int
    shard: int
    stop: int
    ended: bool
    carried: dict[int, bytes]


class CarriedTail:
    """Of the last entries of a shard those that its metalog carries. Bounded: what is further back is in the data ledger."""

    def __init__(self) -> None:
        self.payloads: dict[int, bytes] = {}

    def take(self, entry: MetalogEntry, shard: int, entries_end: int) -> None:
        """The next metalog entry, after which the shard has so many entries."""
        for one in entry.carried:
            if one.shard == shard:
                self.payloads[entries_end - 1] = one.body
                while min(self.payloads) < entries_end - limits.CARRIED_BEHIND:
                    del self.payloads[min(self.payloads)]


async def ordered_of(store: MetadataStore, ledgers: LedgerClient, ledger_id: int) -> Ordered | None:
    """What is ordered of a data ledger; None when no log names it. Reads metalogs, the newest first."""
    try:
        terms = await terms_in(store)
    except NoNode:
        return None  # a cluster without logs
    for term in reversed(terms):
        found = None if term.reclaimed else await _ordered_in(ledgers, term, ledger_id)
        if found is not None:
            return found
    return None


async def _ordered_in(ledgers: LedgerClient, term: Term, ledger_id: int) -> Ordered | None:
    shard, stop, ended = -1, 0, term.end is not None
    tail = CarriedTail()
    async for entry in entries_of(ledgers, term):
        for one in entry.commands:
            if isinstance(one, Open) and one.ledger_id == ledger_id:
                shard = one.shard
            elif isinstance(one, Close) and one.shard == shard:
                ended = True
        for cut in entry.shards:
            if cut.shard == shard:
                stop = cut.entries_end
                tail.take(entry, shard, stop)
    return None if shard < 0 else Ordered(term.log, term.term, shard, stop, ended, tail.payloads)
