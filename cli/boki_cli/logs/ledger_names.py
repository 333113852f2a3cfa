"""What still needs a ledger: who would lose records, or a term, if it were deleted.

| it is | because |
|---|---|
| the metalog of a running term | the view names it |
| the metalog of a sealed term | the term's record names it: without it nobody knows the order of its records |
| a spare of a sequencer that is up | the sequencer's membership names it |
| records of a log | its own metadata says so: only the metalog of its term knows whether they are trimmed |

A metalog that none of them names was a spare whose sequencer is gone; nobody needs it, nor a ledger that no log made.
"""

from __future__ import annotations

from boki_cli.logs.data_ledger import DATA_ROLE
from boki_cli.logs.ledger_options import ROLE
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata
from boki_common.errors import NoNode
from boki_common.metadata.membership import member_path, members
from boki_common.metadata.store import MetadataStore
from boki_metalog.terms.metadata_tree import SEQUENCER_ROLE, read_record, read_view
from boki_metalog.terms.term_record import TERMS_PATH, term_path
from boki_metalog.terms.view import VIEW_PATH


async def what_names(store: MetadataStore, ledger_id: int, metadata: LedgerMetadata) -> list[str]:
    """Why the ledger is needed, in words; empty when nobody needs it. Raises MetadataUnavailable, CorruptData."""
    return [
        *await _by_the_view(store, ledger_id),
        *await _by_term_records(store, ledger_id),
        *await _by_sequencers(store, ledger_id),
        *(["it holds records of a log"] if dict(metadata.custom).get(ROLE) == DATA_ROLE else []),
    ]


async def _by_the_view(store: MetadataStore, ledger_id: int) -> list[str]:
    try:
        view = (await read_view(store)).view
    except NoNode:
        return []  # a cluster without logs
    return [
        f"{VIEW_PATH} names it as the metalog of log {log}, term {installed.term}"
        for log, installed in sorted(view.logs.items())
        if installed is not None and installed.metalog_ledger == ledger_id
    ]


async def _by_term_records(store: MetadataStore, ledger_id: int) -> list[str]:
    try:
        names = await store.children(TERMS_PATH)
    except NoNode:
        return []
    terms = sorted(int(name) for name in names if name.isascii() and name.isdigit())
    return [
        f"{term_path(term)} names it as its metalog"
        for term in terms
        if (await read_record(store, term)).metalog_ledger == ledger_id
    ]


async def _by_sequencers(store: MetadataStore, ledger_id: int) -> list[str]:
    return [
        f"{member_path(SEQUENCER_ROLE, incarnation)} keeps it as a spare"
        for incarnation, value in (await members(store, SEQUENCER_ROLE)).items()
        if ledger_id in value.get("spares", ())
    ]
