"""Whether an entry that is to be carried is what its engine says of it (ADR 21). Pure.

What a cut carries is durable with it, whatever it holds, and is wanted by every engine that indexes. So a sequencer looks at it
before: it must be a record batch of this term and shard, which begins where the entry before it ended and has as many records as
its message says. What is refused here comes as a report, once it is in its data ledger.

It reads columns, not records, and decompresses nothing.
"""

from __future__ import annotations

from boki_common.errors import ProtocolError
from boki_common.records.record_batch import RecordBatch
from boki_metalog.entries.metalog_entry import ShardEnd
from boki_metalog.entries.sequencer_protocol import Carry
from boki_metalog.errors import UnfitCarry


def check_carried(carry: Carry, known: ShardEnd | None) -> None:
    """Checks an entry that is the next one behind what is known of its shard; of any other nothing is taken. Raises UnfitCarry:
    it is no record batch, or another one than it should be."""
    term, shard, records_end, entries_end, body = carry
    if known is None or entries_end != known.entries_end + 1:
        return
    try:
        batch = RecordBatch.parse(memoryview(body))
    except ProtocolError as error:
        raise UnfitCarry(
            f"expected a record batch to carry, as entry {entries_end - 1} of shard {shard}, found something else: {error}",
            shard=shard,
        ) from error
    expected = term, shard, known.records_end, records_end
    found = batch.term, batch.shard, batch.first_local_id, batch.first_local_id + batch.record_count
    if found != expected:
        raise UnfitCarry(
            f"expected to carry records {known.records_end} to below {records_end} of shard {shard} of term {term}, found "
            f"{found[2]} to below {found[3]} of shard {batch.shard} of term {batch.term}",
            shard=shard,
            expected=list(expected),
            found=list(found),
        )
