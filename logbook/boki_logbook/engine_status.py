"""What there is to say about an engine, for people: as plain values, and as sentences."""

from __future__ import annotations

from typing import Any, Final

from boki_logbook.core import EngineCore
from boki_metalog.terms.index_slots import index_slots_text
from boki_metalog.terms.view import FIRST_LOG

FAULT_AFTER_S: Final = 10.0
"""An entry that cannot be read for so long is a fault, and not only bookies that are away for a moment."""


def faults_of(core: EngineCore) -> list[str]:
    """What keeps something of the logs from being served, and will hardly mend itself."""
    found = [core.snapshots.waits_for] if core.snapshots.waits_for else []
    for number, log in sorted(core.logs.items()):
        if log.stop is not None:
            (term, entry), error = log.stop
            found.append(f"log {number} stops at entry {entry} of the metalog of term {term}: {error}")
        found += [
            f"log {number} waits for entry {one['first']} of data ledger {one['ledger_id']}, which cannot be read: {one['error']}"
            for one in log.indexer.unreadable
            if one["for_s"] >= FAULT_AFTER_S
        ]
    return found


def status_of(core: EngineCore) -> dict[str, Any]:
    """What there is to say about this engine; values are plain. The first log's facts are also the engine's."""
    appender, index = core.appender, core.state.index
    logs = [core.logs[log].status() for log in sorted(core.logs)]
    if core.clock_watch is not None:
        for log in logs:
            log["clock"] = core.clock_watch.status(log["log"])
    first = logs[0] if logs else {"log": FIRST_LOG, "term": 0, "position": {}, "seqnum": 0, "shard": None}
    return {
        "role": "engine",
        "incarnation": core.incarnation,
        "log": first["log"],
        "ready": core.ready,
        "index_slots": index_slots_text(core.slots),
        "term": first["term"],
        "position": first["position"],
        "lag_entries": core.pending,
        "seqnum": first["seqnum"],
        "shard": first["shard"],
        "logs": logs,
        "records": core.state.records,
        "books": index.count_books(),
        "writers": len(core.state.verdicts.writers),
        "index": {
            "rows": len(index),
            "bytes": index.bytes,
            "runs": len(index.runs),
            "entries": core.state.places.entry_count,
        },
        "cache": {
            "bytes": core.cache.used_bytes,
            "batches": len(core.cache),
            "hits": core.cache.hits,
            "misses": core.cache.misses,
        },
        "append_queue": {"bytes": appender.queued_bytes, "batches": appender.queued},
        "ack_seconds": {"bounds": core.counters.acks.bounds, "counts": core.counters.acks.counts},
        "between_terms": appender.waiting(),
        "waiting_reads": core.reader.parked,
        "unreadable_data": core.reader.unreadable,
        "reads": {"positions": {str(log): one._asdict() for log, one in core.reader.awaited().items()}},
        "ledgers_to_close": core.sealer.waiting,
        "faults": faults_of(core),
    }
