"""What still needs a ledger: view, term records, sequencers and the ledger's own metadata, each by itself."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from boki_cli.logs.ledger_names import what_names
from boki_common.bookkeeper.layout import init_cluster
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata
from boki_common.ids import BookieId
from boki_common.metadata.memory import MemoryStore
from boki_metalog.follow.sequencer_member import SequencerMember, sequencer_path
from boki_metalog.terms.metadata_tree import create_record, ensure_view
from boki_metalog.terms.term_record import record_of
from boki_metalog.terms.view import FIRST_LOG, VIEW_PATH, Installed, encode_view

PLAIN = LedgerMetadata(ensemble_size=1, write_quorum=1, ack_quorum=1, ensembles=((0, (BookieId("a"),)),))


@pytest.fixture
async def store() -> MemoryStore:
    """The view names ledger 31, the record of term 1 names 30, a sequencer has the spare 32."""
    made = MemoryStore()
    await made.start()
    await init_cluster(made)
    seen = await ensure_view(made)
    view = seen.view
    slots = view.slots_of(FIRST_LOG)
    await create_record(made, record_of(FIRST_LOG, Installed(1, 30, "s", "t", 0), slots, -1, None))
    view = view.with_term(FIRST_LOG, ledger_id=30, sequencer="s", token="t", start_time_ms=0)
    view = view.with_term(FIRST_LOG, ledger_id=31, sequencer="s", token="u", start_time_ms=0)
    await made.set(VIEW_PATH, encode_view(view), version=seen.version)
    await made.create(sequencer_path("s"), msgspec.json.encode(SequencerMember("127.0.0.1:1", (32,))))
    return made


async def test_each_name_is_listed_with_where_it_stands(store: MemoryStore) -> None:
    assert await what_names(store, 30, PLAIN) == ["/boki/terms/1 names it as its metalog"]
    assert await what_names(store, 31, PLAIN) == ["/boki/view names it as the metalog of log 0, term 2"]
    assert await what_names(store, 32, PLAIN) == ["/boki/members/sequencer/s keeps it as a spare"]


async def test_records_of_a_log_are_needed_and_a_spare_of_nobody_is_not(store: MemoryStore) -> None:
    assert await what_names(store, 40, replace(PLAIN, custom=(("boki.role", b"data"),))) == [
        "it holds records of a log"
    ]
    assert await what_names(store, 40, replace(PLAIN, custom=(("boki.role", b"metalog"),))) == []
    assert await what_names(store, 40, PLAIN) == []


async def test_a_cluster_without_logs_needs_no_ledger() -> None:
    bare = MemoryStore()
    await bare.start()
    await init_cluster(bare)
    assert await what_names(bare, 31, PLAIN) == []
