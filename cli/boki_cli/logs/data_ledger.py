"""What the logs say of a data ledger, and recovering one so that it loses nothing that they order.

The last entries of a data ledger may be in the metalog alone: carried by it, and not written yet (ADR 21). Engines close
their ledgers with them. Who recovers one by command has to, too:

| the ledger is | then |
|---|---|
| a shard that has ended, by a CLOSE or with its term | it is recovered with all that is ordered: from bookies, or the metalog |
| a shard that may be given more | refused: `boki log roll` ends it, and then engines close it by themselves |
| named by no log, and its engine is up | refused: it is a spare, or about to be a shard |
| named by no log, and its engine is gone; or no data ledger | it is recovered as it is |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from boki_cli.logs.ledger_options import ROLE
from boki_common import limits
from boki_common.errors import LedgerError, NoNode
from boki_metalog.entries.metalog_entry import Close, MetalogEntry, Open, decode

if TYPE_CHECKING:
    from boki_cli.logs.log_verify import Term
    from boki_common.bookkeeper.ledger_metadata import LedgerMetadata
    from boki_common.metadata.store import MetadataStore
    from boki_ledger.client import LedgerClient

DATA_ROLE: Final = b"data"
INCARNATION: Final = "boki.incarnation"
"""Name of the custom value that says which engine made a ledger."""
READ_ENTRIES: Final = 64


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


async def recover_ledger(
    store: MetadataStore, ledgers: LedgerClient, ledger_id: int, metadata: LedgerMetadata, *, password: bytes
) -> None:
    """Fences and closes a ledger, see the module. One that is closed stays as it is.

    Raises:
        LedgerError: it is refused, saying what to do; or it cannot be recovered now, or ever. As `LedgerClient.open`.
    """
    custom = dict(metadata.custom)
    ordered = None
    if metadata.state.name != "CLOSED" and custom.get(ROLE) == DATA_ROLE:
        ordered = await ordered_of(store, ledgers, ledger_id)
        if ordered is not None and not ordered.ended:
            raise LedgerError(
                f"log {ordered.log} still orders entries of ledger {ledger_id} (shard {ordered.shard} of term {ordered.term}), and "
                f"may have some that the ledger has not: run boki log roll {ordered.log}, which ends the shard; engines close "
                "the ledger then, or this does",
                ledger_id=ledger_id,
            )
        maker = custom.get(INCARNATION, b"").decode(errors="replace")
        if ordered is None and await _is_up(store, maker):
            raise LedgerError(
                f"ledger {ledger_id} is a spare of engine {maker}, which is up: it uses it, or deletes it when it is stopped",
                ledger_id=ledger_id,
            )
    if ordered is None:
        reader = await ledgers.open(ledger_id, recover=True, password=password)
    else:
        reader = await ledgers.open(
            ledger_id, recover=True, floor=ordered.stop, carried=ordered.carried, password=password
        )
    await reader.close()


async def ordered_of(store: MetadataStore, ledgers: LedgerClient, ledger_id: int) -> Ordered | None:
    """What is ordered of a data ledger; None when no log names it. Reads metalogs, the newest first."""
    from boki_cli.logs.log_verify import terms_of
    from boki_metalog.follow.term_history import TermHistory
    from boki_metalog.terms.metadata_tree import read_record, read_view

    try:
        view = (await read_view(store)).view
    except NoNode:
        return None  # a cluster without logs
    history = TermHistory(store)
    await history.refresh()
    records = [await read_record(store, number) for number in history.numbers]
    for term in reversed(terms_of(view, records, None)):
        found = None if term.reclaimed else await _ordered_in(ledgers, term, ledger_id)
        if found is not None:
            return found
    return None


async def _ordered_in(ledgers: LedgerClient, term: Term, ledger_id: int) -> Ordered | None:
    shard, stop, ended = -1, 0, term.end is not None
    tail = CarriedTail()
    reader = await ledgers.open(term.metalog_ledger, recover=False)
    try:
        end = await reader.read_lac() + 1 if term.end is None else term.end
        for first in range(0, end, READ_ENTRIES):
            for payload in await reader.read(first, min(first + READ_ENTRIES, end) - 1):
                entry = decode(payload)
                for one in entry.commands:
                    if isinstance(one, Open) and one.ledger_id == ledger_id:
                        shard = one.shard
                    elif isinstance(one, Close) and one.shard == shard:
                        ended = True
                for cut in entry.shards:
                    if cut.shard == shard:
                        stop = cut.entries_end
                        tail.take(entry, shard, stop)
    finally:
        await reader.close()
    return None if shard < 0 else Ordered(term.log, term.term, shard, stop, ended, tail.payloads)


async def _is_up(store: MetadataStore, incarnation: str) -> bool:
    from boki_common.metadata.membership import members
    from boki_metalog.terms.index_slots import ENGINE_ROLE

    return incarnation in await members(store, ENGINE_ROLE)
