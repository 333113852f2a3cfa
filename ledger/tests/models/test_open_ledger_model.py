"""A model of a ledger that is written while a bookie is repaired away: writer, recovery, repairer, a bookie that loses its index.

Ensemble and write quorum 3, ack quorum 2, bookies 0 to 4. The writer sends its entries bookie by bookie, and may replace
bookie 0 by 3. Recovery fences, reads, writes back and closes. The repairer copies the entries of one fragment to bookie 3 or 4
and swaps it in at the version that it read. Once the ledger is closed, bookie 1 may lose its index and get its
entries back as copies; then a normal add there needs a look at the metadata (first validation).

Invariant: no acknowledged entry is beyond the end of a closed ledger, and each lies on two members of its committed fragment (one,
where bookie 1 lost its index). Which fragments the repairer takes is `plan.fixed_fragments`, as in production.

| mutant | loses an entry |
|---|---|
| the last fragment of an open ledger is repaired | with one swap |
| a copy counts as validation | a zombie writer gets an acknowledgement of the repaired bookie |
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple

from tests.models.explore import Explored, explore

from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.ids import BookieId
from boki_ledger.repair.plan import fixed_fragments

OPEN, RECOVERING, CLOSED = "open", "in recovery", "closed"
NONE: Final[frozenset[int]] = frozenset()
LOSER: Final = 1
Fragments = tuple[tuple[int, tuple[int, ...]], ...]


class Mode(NamedTuple):
    """What is explored."""

    entries: int
    repairs: int
    repairs_last: bool = False
    loses_index: bool = False
    copy_validates: bool = False


class Writer(NamedTuple):
    """`acks` by entry; it stops for good when it meets a fence or a fragment of somebody else."""

    ensemble: tuple[int, ...] = (0, 1, 2)
    start: int = 0
    acks: tuple[frozenset[int], ...] = (NONE, NONE)
    lac: int = -1
    runs: bool = True


class Recovery(NamedTuple):
    """`at`: idle, read, close, done."""

    at: str = "idle"
    version: int = 0
    members: tuple[int, ...] = ()
    entry: int = 0
    have: frozenset[int] = NONE
    deny: frozenset[int] = NONE


class Repairer(NamedTuple):
    """`at`: idle, copy, swap."""

    at: str = "idle"
    version: int = 0
    fragment: int = 0
    old: int = 0
    new: int = 0
    begun: int = 0


class State(NamedTuple):
    """All of it."""

    version: int = 0
    state: str = OPEN
    fragments: Fragments = ((0, (0, 1, 2)),)
    last: int = -1
    stored: tuple[frozenset[int], ...] = (NONE,) * 5
    fenced: tuple[bool, ...] = (False,) * 5
    validated: tuple[bool, ...] = (True, True, True, False, False)
    writer: Writer = Writer()
    recovery: Recovery = Recovery()
    repairer: Repairer = Repairer()
    lost: bool = False


def at(values: tuple[Any, ...], index: int, value: object) -> tuple[Any, ...]:
    return (*values[:index], value, *values[index + 1 :])


def members_of(fragments: Fragments, entry: int) -> tuple[int, ...]:
    return max(fragment for fragment in fragments if fragment[0] <= entry)[1]


@cache
def fixed(fragments: Fragments, state: str, last: int) -> frozenset[int]:
    """The fragments that production repairs."""
    metadata = LedgerMetadata(
        ensemble_size=3,
        write_quorum=3,
        ack_quorum=2,
        ensembles=tuple((first, tuple(BookieId(str(one)) for one in members)) for first, members in fragments),
        state={OPEN: LedgerState.OPEN, RECOVERING: LedgerState.IN_RECOVERY, CLOSED: LedgerState.CLOSED}[state],
        last_entry=last,
    )
    return frozenset(fragment.number for fragment in fixed_fragments(metadata))


def steps_of_writer(s: State, mode: Mode) -> Iterator[tuple[str, State]]:
    w = s.writer
    if not w.runs:
        return
    stopped = s._replace(writer=w._replace(runs=False))
    for entry in range(w.start, mode.entries):
        for bookie in w.ensemble:
            if bookie in w.acks[entry]:
                continue
            if s.fenced[bookie]:
                yield f"bookie {bookie} is fenced: the writer stops", stopped
            elif not s.validated[bookie] and (s.state != OPEN or bookie not in s.fragments[-1][1]):
                yield f"bookie {bookie} refuses at first sight: the writer stops", stopped
            else:
                yield (
                    f"entry {entry} is added on bookie {bookie}",
                    s._replace(
                        stored=at(s.stored, bookie, s.stored[bookie] | {entry}),
                        validated=at(s.validated, bookie, True),
                        writer=w._replace(acks=at(w.acks, entry, w.acks[entry] | {bookie})),
                    ),
                )
    following = w.lac + 1
    if following < mode.entries and len(w.acks[following]) >= 2:
        yield f"entry {following} is acknowledged", s._replace(writer=w._replace(lac=following))
    if 0 in w.ensemble and (s.state != OPEN or s.fragments[-1] != (w.start, w.ensemble)):
        if not (mode.repairs_last and s.state == OPEN):
            yield "the writer meets another's metadata and stops", stopped
    elif 0 in w.ensemble:
        ensemble = tuple(3 if member == 0 else member for member in w.ensemble)
        kept = s.fragments[:-1] if following == w.start else s.fragments
        acks = tuple(acks - {0} if entry > w.lac else acks for entry, acks in enumerate(w.acks))
        yield (
            f"the writer replaces bookie 0 from entry {following}",
            s._replace(
                version=s.version + 1,
                fragments=(*kept, (following, ensemble)),
                writer=w._replace(ensemble=ensemble, start=following, acks=acks),
            ),
        )


def steps_of_recovery(s: State, mode: Mode) -> Iterator[tuple[str, State]]:
    r = s.recovery
    if r.at == "idle" and s.state == OPEN:
        begun = Recovery("read", s.version + 1, s.fragments[-1][1], s.fragments[-1][0])
        yield "recovery begins", s._replace(version=s.version + 1, state=RECOVERING, recovery=begun)
    if r.at == "read":
        for bookie in r.members:
            if bookie in r.have | r.deny or (s.lost and bookie == LOSER and r.entry not in s.stored[bookie]):
                continue
            fenced = at(s.fenced, bookie, True)
            if r.entry in s.stored[bookie]:
                found = r._replace(have=r.have | {bookie})
                yield f"bookie {bookie} has entry {r.entry}", s._replace(fenced=fenced, recovery=found)
            else:
                denied = r._replace(deny=r.deny | {bookie})
                yield f"bookie {bookie} denies entry {r.entry}", s._replace(fenced=fenced, recovery=denied)
        if r.have:
            stored = tuple(one | {r.entry} if bookie in r.members else one for bookie, one in enumerate(s.stored))
            where = "read" if r.entry + 1 < mode.entries else "close"
            onward = r._replace(at=where, entry=r.entry + 1, have=NONE, deny=NONE)
            yield f"entry {r.entry} is written back", s._replace(stored=stored, recovery=onward)
        if len(r.deny) >= 2:
            yield (
                f"the end is before entry {r.entry}",
                s._replace(recovery=r._replace(at="close", have=NONE, deny=NONE)),
            )
    if r.at == "close" and s.version == r.version:
        yield (
            f"recovery closes at {r.entry - 1}",
            s._replace(version=s.version + 1, state=CLOSED, last=r.entry - 1, recovery=Recovery("done")),
        )
    elif r.at == "close":
        again = Recovery("read", s.version, s.fragments[-1][1], s.fragments[-1][0])
        yield "recovery meets a conflict", s._replace(recovery=again if s.state == RECOVERING else Recovery("done"))


def steps_of_repairer(s: State, mode: Mode) -> Iterator[tuple[str, State]]:
    p = s.repairer
    if p.at == "idle" and p.begun < mode.repairs:
        allowed = set(fixed(s.fragments, s.state, s.last))
        if mode.repairs_last and s.state == OPEN:
            allowed.add(len(s.fragments) - 1)
        for fragment in sorted(allowed):
            members = s.fragments[fragment][1]
            for old in (0, 2):
                for new in (3, 4):
                    if old in members and new not in members:
                        begun = Repairer("copy", s.version, fragment, old, new, p.begun + 1)
                        yield f"the repairer reads: {new} for {old} in fragment {fragment}", s._replace(repairer=begun)
    if p.at == "copy" and p.fragment < len(s.fragments):
        first, members = s.fragments[p.fragment]
        later = [start for start, _ in s.fragments[p.fragment + 1 :]]
        end = min([*later, s.last + 1 if s.state == CLOSED else mode.entries])
        have = NONE.union(*(s.stored[member] for member in members)) & frozenset(range(first, end))
        stored = at(s.stored, p.new, s.stored[p.new] | have)
        yield f"the repairer copies {sorted(have)}", s._replace(stored=stored, repairer=p._replace(at="swap"))
    if p.at == "swap" and s.version == p.version:
        first, members = s.fragments[p.fragment]
        swapped = (first, tuple(p.new if member == p.old else member for member in members))
        yield (
            f"the repairer swaps {p.new} for {p.old} in fragment {p.fragment}",
            s._replace(
                version=s.version + 1, fragments=at(s.fragments, p.fragment, swapped), repairer=p._replace(at="idle")
            ),
        )
    elif p.at == "swap":
        yield "the repairer meets a conflict", s._replace(repairer=p._replace(at="idle"))


def steps(s: State, mode: Mode) -> Iterator[tuple[str, State]]:
    yield from steps_of_writer(s, mode)
    yield from steps_of_recovery(s, mode)
    yield from steps_of_repairer(s, mode)
    if s.state == CLOSED and mode.loses_index and not s.lost:
        others = NONE.union(*(one for bookie, one in enumerate(s.stored) if bookie != LOSER))
        copies = frozenset(
            entry for entry in range(s.last + 1) if LOSER in members_of(s.fragments, entry) and entry in others
        )
        yield (
            "bookie 1 loses its index, and gets its copies",
            s._replace(
                stored=at(s.stored, LOSER, copies),
                fenced=at(s.fenced, LOSER, False),
                validated=at(s.validated, LOSER, mode.copy_validates and bool(copies)),
                lost=True,
            ),
        )


def broken(s: State) -> bool:
    lac = s.writer.lac
    if s.state == CLOSED and lac > s.last:
        return True
    least = 1 if s.lost else 2
    return any(
        sum(entry in s.stored[member] for member in members_of(s.fragments, entry)) < least for entry in range(lac + 1)
    )


def explored(mode: Mode) -> Explored:
    found = explore(State(), lambda state: steps(state, mode), broken)
    print(f"{found.states} states explored", *found.way, sep="\n")  # noqa: T201 - how much of the model was looked at
    return found


def test_fragments_with_a_fixed_end_are_repaired_beside_writer_and_recovery() -> None:
    found = explored(Mode(entries=2, repairs=1))
    assert (found.states > 10_000, found.way) == (True, [])


def test_a_bookie_that_got_copies_back_acknowledges_nothing_to_a_zombie() -> None:
    assert not explored(Mode(entries=2, repairs=0, loses_index=True)).way


def test_a_swap_in_the_last_fragment_of_an_open_ledger_loses_an_entry() -> None:
    assert explored(Mode(entries=1, repairs=1, repairs_last=True)).way


def test_a_copy_that_counts_as_validation_loses_an_entry() -> None:
    assert explored(Mode(entries=2, repairs=0, loses_index=True, copy_validates=True)).way
