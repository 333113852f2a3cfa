"""New terms, by anybody (DESIGN §8): of one log, or of several whose slots move. `term_plan` decides, this walks.

    1  read the view. If nothing is left of what is wanted, it is done: somebody else did it.
    2  take a living sequencer's spare for each log; fence, recover and close the metalogs of all terms that end.
       This decides these terms. A sequencer that lives may be asked to end its term and close its metalog itself before
       (`Yields`), which is faster: nobody has to fence it then. Whatever comes of that, it is looked at as if it had not been.
    3  one compare-and-swap of the view at the version of step 1 sets the slots and all new terms; their numbers are its
       `next_term` and those after it. The same write creates the records `/boki/terms/<t>` of those that end. Another
       version: from step 1. A record that is there already has the same bytes from anybody: then they are made one by one
       before the swap, "exists" is success.

Rules:
- A driver may stop after any step; another one, or the same again, goes from step 1 and meets what was done as done. A
  move that stopped leaves closed metalogs, which plain next terms replace: nothing has moved before the swap.
- Nobody can order between 2 and 3: the old metalogs are closed and the new ones are not in the view.
- The numbers come from the swap itself, so none can arrive late. A swap whose answer is lost is settled only by a later
  version (`compare_and_set`).
- A spare that ever was a metalog is refused, whoever lists it still: the metalog of a replaced term was closed before the
  view dropped it, so a spare that is open, looked at after the view was read, and not named there, has never been one.
- A spare is installed at most once: whoever sees its swap lose must offer another ledger, for it may have won for a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, NoReturn

from boki_common.errors import BadVersion, NodeExists, NoSuchLedger
from boki_common.logs import get_logger
from boki_common.metadata.settle import compare_and_set
from boki_common.metadata.store import MetadataStore
from boki_common.runtime.ports import Random
from boki_ledger.ledgers import Ledgers
from boki_metalog.errors import SpareTaken
from boki_metalog.terms import term_plan
from boki_metalog.terms.metadata_tree import VersionedView, create_record, ensure_view
from boki_metalog.terms.term_end import Decision, given_up, last_of
from boki_metalog.terms.term_plan import Candidate, Plan
from boki_metalog.terms.term_record import TermRecord, encode_record, record_of, term_path
from boki_metalog.terms.view import VIEW_PATH, Installed, View, encode_view

TOKEN_BYTES: Final = 16

Decide = Callable[[View], Plan | None]
"""What is left to do at a view; None: nothing."""
Choose = Callable[[View, tuple[int, ...]], Awaitable[Mapping[int, Candidate]]]
"""A candidate for each of these logs. Raises NoSequencer."""
Yields = Callable[[Installed], Awaitable[None]]
"""Asks the sequencer of a term to end it; raises nothing that the ledger does not report better."""

Decisions = Mapping[int, Decision]
"""Term → a person's decision where it ends."""
NO_DECISIONS: Final[Decisions] = MappingProxyType({})

_log = get_logger("term_change")


async def change_term(
    *, metadata: MetadataStore, ledgers: Ledgers, rng: Random, log: int, suspect: int, candidate: Candidate
) -> VersionedView:
    """Replaces term `suspect` of `log` (0: installs its first one). Safe to repeat and to race.

    Returns:
        A view whose term of the log is not the suspect; whose it is, see `Candidate.is_installed`.

    Raises:
        MetadataUnavailable, MetadataUnknown, RecoveryFailed, EntryUnknown, …: repeat later; nothing is half done that a
            repetition would not finish.
        SpareTaken: offer another ledger.
        TermRecordConflict, MetalogUnreadable, LedgerDataMissing: a person must look.
    """

    async def choose(_view: View, logs: tuple[int, ...]) -> Mapping[int, Candidate]:
        return dict.fromkeys(logs, candidate)

    decide = partial(term_plan.replace, log=log, suspect=suspect)
    return await change_terms(metadata=metadata, ledgers=ledgers, rng=rng, decide=decide, choose=choose)


async def change_terms(
    *,
    metadata: MetadataStore,
    ledgers: Ledgers,
    rng: Random,
    decide: Decide,
    choose: Choose,
    yields: Yields | None = None,
    known: VersionedView | None = None,
    decisions: Decisions = NO_DECISIONS,
) -> VersionedView:
    """Does what `decide` finds left to do, until it finds nothing. Safe to repeat and to race.

    Args:
        yields: called for each term that ends, once nothing else is in the way; None: nobody is asked.
        known: the view as it was read just now, which saves reading it again.
        decisions: terms that end before an entry of their metalog, if they end by this change.

    Returns:
        A view at which nothing is left.

    Raises:
        As `change_term`; and what `decide` and `choose` raise. Nothing is sealed before a candidate is there for each log.
    """
    token = rng.token(TOKEN_BYTES).hex()
    while True:
        found, known = known or await ensure_view(metadata), None
        plan = decide(found.view)
        if plan is None:
            return found
        candidates = await choose(found.view, plan.logs)
        term_plan.check_candidates(found.view, plan, candidates)
        await asyncio.gather(*(_check_spare(ledgers, candidates[log]) for log in plan.logs))
        sealed = await _seal_all(ledgers, found.view, plan, yields, decisions)
        wanted = term_plan.next_view(found.view, plan, candidates, sealed, token)
        try:
            version = await _swap(metadata, wanted, found.version, list(sealed.values()))
        except BadVersion:
            _log.debug("the view moved, again", logs=plan.sealed, version=found.version)
            continue
        for log in plan.logs:
            _log.info("term installed", log=log, term=wanted.term_of(log), metalog_ledger=candidates[log].ledger_id)
        return VersionedView(wanted, version)


async def _swap(metadata: MetadataStore, wanted: View, version: int, sealed: Sequence[TermRecord]) -> int:
    """Step 3. Returns the new version. Raises BadVersion; TermRecordConflict."""
    value = encode_view(wanted)
    records = {term_path(record.term): encode_record(record) for record in sealed}
    try:
        return await compare_and_set(metadata, VIEW_PATH, value, version=version, creating=records)
    except NodeExists:
        # A driver that makes them one by one was here, and perhaps stopped before its swap.
        for record in sealed:
            await create_record(metadata, record)
        return await compare_and_set(metadata, VIEW_PATH, value, version=version)


async def _check_spare(ledgers: Ledgers, candidate: Candidate) -> None:
    """Raises SpareTaken unless the ledger is there and open."""
    try:
        reader = await ledgers.open(candidate.ledger_id, recover=False)
    except NoSuchLedger:
        _refuse(candidate, "is gone")
    try:
        if reader.closed:
            _refuse(candidate, "is closed: a term had it, or it was given up")
    finally:
        await reader.close()


def _refuse(candidate: Candidate, why: str) -> NoReturn:
    raise SpareTaken(
        f"ledger {candidate.ledger_id}, offered by sequencer {candidate.incarnation}, {why}; take another spare",
        ledger_id=candidate.ledger_id,
    )


async def _seal_all(
    ledgers: Ledgers, view: View, plan: Plan, yields: Yields | None, decisions: Decisions
) -> dict[int, TermRecord]:
    """Step 2 for all terms that end, at once; the first error is raised after all have ended."""
    logs = [log for log in plan.sealed if view.installed(log) is not None]
    seals = (_seal(ledgers, view, log, yields, decisions) for log in logs)
    found = await asyncio.gather(*seals, return_exceptions=True)
    records = {}
    for log, record in zip(logs, found, strict=True):
        if isinstance(record, BaseException):
            raise record
        records[log] = record
    return records


async def _seal(
    ledgers: Ledgers, view: View, log: int, yields: Yields | None = None, decisions: Decisions = NO_DECISIONS
) -> TermRecord:
    installed = view.installed(log)
    assert installed is not None
    decision = decisions.get(installed.term)
    if yields is not None:
        await yields(installed)
    reader = await ledgers.open(installed.metalog_ledger, recover=True)
    try:
        last_entry = reader.last_entry
        assert reader.closed, "recovery closes the ledger, or raises"
        if decision is None:
            last = await last_of(reader, term=installed.term, start_time_ms=installed.start_time_ms)
            record = record_of(log, installed, view.slots_of(log), last_entry, last)
        else:
            kept, gone = await given_up(reader, decision, term=installed.term)
            last_entry = kept.entries - 1
            record = record_of(log, installed, view.slots_of(log), last_entry, kept.last, gone)
            _log.warning(
                "a term ends before an entry", log=log, term=record.term, entry=gone.first_entry, fault=gone.fault
            )
    finally:
        await reader.close()
    _log.info("term sealed", log=log, term=record.term, last_entry=last_entry, end_pos=record.end_pos)
    return record
