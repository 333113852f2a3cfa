"""What one change of terms does to a view: which logs get a new term, from whose spare, which slots and logs move.

    replace(view, log, suspect)       the next term of one log
    move(view, slots, to)             these slots go to one log
    spread(view, weights)             slots by weight, with the least movement
    remove(view, log)                 a log gives all its slots away and leaves

Each says what is left to do at this view, None when that is nothing: so a driver that lost a race decides again, and one
that died is finished by anybody. `next_view` is the value to be swapped in.

Rules:
- A move names all logs that give or take a slot: the term of each is sealed, and its number is drawn by the same swap.
- A suspicion names a term and never carries over to a newer one; a move suspects nobody and names no term.
- A sequencer orders one log at a time, and a ledger is the metalog of one term: a candidate that is in the view already is
  refused (`SpareTaken`).

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from boki_common.errors import InvalidArgument, NoSequencer
from boki_metalog.errors import SpareTaken
from boki_metalog.terms import slot_rules
from boki_metalog.terms.term_record import TermRecord
from boki_metalog.terms.view import NewTerm, View


class Candidate(NamedTuple):
    """A live sequencer and the spare ledger that it made and listed."""

    incarnation: str
    ledger_id: int

    def is_installed(self, view: View, log: int) -> bool:
        """Whether the log's current term is this sequencer's, on this ledger: it may begin."""
        installed = view.installed(log)
        return installed is not None and (installed.sequencer, installed.metalog_ledger) == self

    def installed_log(self, view: View) -> int | None:
        """The log whose current term is this sequencer's, on this ledger."""
        return next((log for log in sorted(view.logs) if self.is_installed(view, log)), None)


class Offer(NamedTuple):
    """A living sequencer's spare, and the only log it serves (None: any)."""

    ledger_id: int
    only: int | None = None


class Plan(NamedTuple):
    """See the module."""

    logs: tuple[int, ...]
    """They get a new term; ascending."""
    slots: tuple[int, ...] | None = None
    """The log of each slot from then on; None: as they are."""
    without: tuple[int, ...] = ()
    """Logs that are sealed too, and leave the view."""

    @property
    def sealed(self) -> tuple[int, ...]:
        """The logs whose current terms end."""
        return tuple(sorted((*self.logs, *self.without)))


def replace(view: View, log: int, suspect: int) -> Plan | None:
    """The next term of a log, if its term is still the suspect (0: none was installed)."""
    return Plan((log,)) if view.term_of(log) == suspect else None


def move(view: View, slots: Iterable[int], to: int) -> Plan | None:
    """Raises InvalidArgument: no such log or slot."""
    _check_log(view, to)
    return _to_slots(view, slot_rules.moved(view.per_slot, slots, to))


def spread(view: View, weights: Mapping[int, int]) -> Plan | None:
    """Raises InvalidArgument: no such log, or no log has a weight."""
    for log in sorted(weights):
        _check_log(view, log)
    return _to_slots(view, slot_rules.spread(view.per_slot, weights))


def remove(view: View, log: int) -> Plan | None:
    """What a log gives up goes to the others in proportion to the slots they have. Raises InvalidArgument: it is the only log."""
    if log not in view.logs:
        return None
    others = [one for one in sorted(view.logs) if one != log]
    if not others:
        raise InvalidArgument(f"log {log} is the only one: add another before it is removed", found=log)
    if log not in view.per_slot:
        return Plan((), None, (log,))
    held = {one: view.per_slot.count(one) for one in others}
    after = slot_rules.spread(view.per_slot, held if any(held.values()) else dict.fromkeys(others, 1))
    takers = tuple(one for one in slot_rules.concerned(view.per_slot, after) if one != log)
    return Plan(takers, after, (log,))


def next_view(
    view: View, plan: Plan, candidates: Mapping[int, Candidate], sealed: Mapping[int, TermRecord], token: str
) -> View:
    """The view that does what is planned.

    Args:
        candidates: one for each log that gets a term.
        sealed: the records of all terms that end; a log that never had a term has none.

    Raises:
        SpareTaken: a candidate is in the view already, or is named for two logs.
    """
    assert all((log in sealed) == (view.installed(log) is not None) for log in plan.sealed), (
        "sealed before it is replaced"
    )
    check_candidates(view, plan, candidates)
    newest_ms = max((record.last_time_ms for record in sealed.values()), default=0)
    terms = {}
    for log in plan.logs:
        incarnation, ledger_id = candidates[log]
        own = sealed.get(log)
        start_ms = newest_ms if plan.slots is not None else 0 if own is None else own.last_time_ms
        terms[log] = NewTerm(ledger_id, incarnation, start_ms)
    return view.with_terms(terms, token=token, slots=plan.slots, without=plan.without)


def check_candidates(view: View, plan: Plan, candidates: Mapping[int, Candidate]) -> None:
    """Raises SpareTaken. Before anything is sealed, so that a refused plan seals nothing."""
    metalogs = {one.metalog_ledger for one in view.logs.values() if one is not None}
    busy = {incarnation for incarnation, log in view.sequencers.items() if log not in plan.sealed}
    for log in plan.logs:
        incarnation, ledger_id = candidates[log]
        if ledger_id in metalogs or incarnation in busy:
            raise SpareTaken(
                f"ledger {ledger_id} or its sequencer {incarnation} has a term already; take another spare for log {log}",
                ledger_id=ledger_id,
                log=log,
            )
        metalogs.add(ledger_id)
        busy.add(incarnation)


def pair(view: View, logs: Sequence[int], offers: Mapping[str, Offer]) -> dict[int, Candidate]:
    """A candidate for each log: its own sequencer where that offers a spare, else one that stands by. `offers`: by incarnation,
    in the order of preference. Raises NoSequencer: too few."""
    serving = view.sequencers
    standbys = {incarnation: offer for incarnation, offer in offers.items() if incarnation not in serving}
    chosen = {}
    for log in logs:
        installed = view.installed(log)
        incarnation = "" if installed is None else installed.sequencer
        if incarnation not in offers:
            fitting = [one for one, offer in standbys.items() if offer.only in (None, log)]
            # Who may serve one log only comes first: the others can help elsewhere.
            incarnation = min(fitting, key=lambda one: standbys[one].only is None, default="")
            standbys.pop(incarnation, None)
        if not incarnation:
            raise NoSequencer(
                f"log {log} needs a sequencer with a spare ledger, and none of {len(offers)} is free: start another "
                "(`boki sequencer`), or wait for one to list its next spare",
                log=log,
            )
        chosen[log] = Candidate(incarnation, offers[incarnation].ledger_id)
    return chosen


def _to_slots(view: View, after: tuple[int, ...]) -> Plan | None:
    logs = slot_rules.concerned(view.per_slot, after)
    return Plan(logs, after) if logs else None


def _check_log(view: View, log: int) -> None:
    if log not in view.logs:
        raise InvalidArgument(
            f"expected one of the logs {sorted(view.logs)}, found {log}; `boki log add` makes it", found=log
        )
