"""Recovering a data ledger so that it loses nothing that they order.

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

from typing import TYPE_CHECKING, Final

from boki_cli.logs.ledger_options import ROLE
from boki_common.errors import LedgerError

if TYPE_CHECKING:
    from boki_common.bookkeeper.ledger_metadata import LedgerMetadata
    from boki_common.metadata.store import MetadataStore
    from boki_ledger.client import LedgerClient

DATA_ROLE: Final = b"data"
INCARNATION: Final = "boki.incarnation"
"""Name of the custom value that says which engine made a ledger."""


async def recover_ledger(
    store: MetadataStore, ledgers: LedgerClient, ledger_id: int, metadata: LedgerMetadata, *, password: bytes
) -> None:
    """Fences and closes a ledger, see the module. One that is closed stays as it is. Raises LedgerError: it is refused, saying
    what to do; or it cannot be recovered now, or ever. As `LedgerClient.open`."""
    from boki_logbook.scan.metalogs import ordered_of

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


async def _is_up(store: MetadataStore, incarnation: str) -> bool:
    from boki_common.metadata.membership import members
    from boki_metalog.terms.index_slots import ENGINE_ROLE

    return incarnation in await members(store, ENGINE_ROLE)
