"""The next term of a log, by anybody (DESIGN §8): a plan of pure steps, and the thin driver that walks it.

    1  read the view. If the log's term is not the one to be replaced, it is done: somebody else did it.
    2  fence, recover and close that term's metalog. This decides the term.
    3  create its record `/boki/terms/<t>`: the same bytes from anybody, "exists" is success.
    4  compare-and-swap the view at the version of step 1: the number is its `next_term`, the metalog the candidate's
       spare ledger. Another version: from step 1.

Rules:
- A driver may stop after any step; another one, or the same again, goes from step 1 and meets what was done as done.
- Nobody can order between 2 and 4: the old metalog is closed and the new one is not in the view.
- The number comes from the swap itself, so it cannot arrive late. A swap whose answer is lost is settled only by a later
  version (`compare_and_set`).
- The driver names the term that it suspects: a suspicion never carries over to a newer one.
- A spare is installed at most once: whoever sees its swap lose must offer another ledger, for it may have won for a moment.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from boki_common.errors import BadVersion
from boki_common.logs import get_logger
from boki_common.metadata.settle import compare_and_set
from boki_common.metadata.store import MetadataStore
from boki_common.runtime.ports import Random
from boki_metalog.ledgers import Ledgers
from boki_metalog.metadata_tree import VersionedView, create_record, ensure_view, read_view
from boki_metalog.metalog_entry import MetalogEntry, decode
from boki_metalog.term_record import TermRecord, record_of
from boki_metalog.view import VIEW_PATH, View, encode_view

TOKEN_BYTES: Final = 16
_log = get_logger("term_change")


class Candidate(NamedTuple):
    """A live sequencer and the spare ledger that it made and listed."""

    incarnation: str
    ledger_id: int

    def is_installed(self, view: View, log: int) -> bool:
        """Whether the log's current term is this sequencer's, on this ledger: it may begin."""
        installed = view.installed(log)
        return installed is not None and (installed.sequencer, installed.metalog_ledger) == self


# -- decisions


def is_done(view: View, log: int, suspect: int) -> bool:
    """Whether the log's term is another than the suspect (0: none was installed)."""
    return view.term_of(log) != suspect


def seal(view: View, log: int, last_entry: int, last: MetalogEntry | None) -> TermRecord:
    """The record of the log's current term, whose metalog is closed at `last_entry`."""
    installed = view.installed(log)
    assert installed is not None
    return record_of(log, installed, view.slots_of(log), last_entry, last)


def next_view(view: View, log: int, candidate: Candidate, sealed: TermRecord | None, token: str) -> View:
    """The view that installs the candidate. `sealed` is None only for the log's first term."""
    assert (sealed is None) == (view.installed(log) is None)
    named = {one.metalog_ledger for one in view.logs.values() if one is not None}
    assert candidate.ledger_id not in named, f"ledger {candidate.ledger_id} is a term's metalog already, not a spare"
    return view.with_term(
        log,
        ledger_id=candidate.ledger_id,
        sequencer=candidate.incarnation,
        token=token,
        start_time_ms=0 if sealed is None else sealed.last_time_ms,
    )


# -- the driver


async def change_term(
    *, metadata: MetadataStore, ledgers: Ledgers, rng: Random, log: int, suspect: int, candidate: Candidate
) -> VersionedView:
    """Replaces term `suspect` of `log` (0: installs its first one). Safe to repeat and to race.

    Returns:
        A view whose term of the log is not the suspect; whose it is, `Candidate.is_installed` tells.

    Raises:
        MetadataUnavailable, MetadataUnknown, RecoveryFailed, EntryUnknown, …: repeat later; nothing is half done that a
            repetition would not finish.
        TermRecordConflict, ProtocolError, LedgerDataMissing: a person must look.
    """
    token = rng.token(TOKEN_BYTES).hex()
    while True:
        found = await ensure_view(metadata)
        if is_done(found.view, log, suspect):
            return found
        sealed = await _seal(metadata, ledgers, found.view, log)
        wanted = next_view(found.view, log, candidate, sealed, token)
        try:
            await compare_and_set(metadata, VIEW_PATH, encode_view(wanted), version=found.version)
        except BadVersion:
            _log.debug("the view moved, again", log=log, suspect=suspect, version=found.version)
            continue
        _log.info("term installed", log=log, term=found.view.next_term, metalog_ledger=candidate.ledger_id)
        return await read_view(metadata)


async def _seal(metadata: MetadataStore, ledgers: Ledgers, view: View, log: int) -> TermRecord | None:
    """Steps 2 and 3; None when the log has no term yet."""
    installed = view.installed(log)
    if installed is None:
        return None
    reader = await ledgers.open(installed.metalog_ledger, recover=True)
    try:
        last_entry = reader.last_entry
        assert reader.closed, "recovery closes the ledger, or raises"
        last = decode((await reader.read(last_entry, last_entry))[0]) if last_entry >= 0 else None
    finally:
        await reader.close()
    record = seal(view, log, last_entry, last)
    await create_record(metadata, record)
    _log.info("term sealed", log=log, term=record.term, last_entry=last_entry, end_pos=record.end_pos)
    return record
