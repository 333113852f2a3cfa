"""Plans of repair, against plain counting over all small ledgers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from boki_common.bookkeeper import ledger_metadata
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.ids import BookieId
from boki_ledger.repair import plan
from boki_ledger.repair.plan import FOR_GOOD, Blocker
from boki_ledger.rules.write_set import write_set

NAMES = tuple(BookieId(name) for name in "abcde")


def ledger(
    *fragments: tuple[int, str],
    state: LedgerState = LedgerState.CLOSED,
    last: int = 5,
    quorum: int = 0,
    length: int = 0,
) -> LedgerMetadata:
    """A ledger; each fragment is (first entry, one letter a slot)."""
    size = len(fragments[0][1])
    return LedgerMetadata(
        ensemble_size=size,
        write_quorum=quorum or size,
        ack_quorum=1,
        ensembles=tuple((first, tuple(BookieId(one) for one in members)) for first, members in fragments),
        state=state,
        last_entry=last if state is LedgerState.CLOSED else -1,
        length=length,
    )


def small_ledgers() -> Iterator[LedgerMetadata]:
    for size, state in itertools.product((1, 2, 3), LedgerState):
        for quorum, last, second in itertools.product(range(1, size + 1), range(-1, 5), (None, 1, 3)):
            members = "".join(NAMES[:size])
            fragments = [(0, members)] if second is None else [(0, members), (second, members[:-1] + "d")]
            made = ledger(*fragments, state=state, last=last, quorum=quorum)
            if not ledger_metadata.faults(made):
                yield made


def holders(metadata: LedgerMetadata, entry: int) -> list[BookieId]:
    members = metadata.ensemble_of(entry)
    return [members[slot] for slot in write_set(entry, metadata.ensemble_size, metadata.write_quorum)]


def fixed_entries(metadata: LedgerMetadata) -> range:
    ends = {
        LedgerState.CLOSED: metadata.last_entry + 1,
        LedgerState.OPEN: metadata.ensembles[-1][0],
        LedgerState.IN_RECOVERY: 0,
    }
    return range(ends[metadata.state])


def test_a_plan_gives_each_missing_copy_to_one_bookie_and_touches_nothing_else() -> None:
    seen = 0
    for metadata, count in itertools.product(small_ledgers(), (1, 2)):
        for lost in map(frozenset, itertools.combinations(NAMES[:4], count)):
            made = plan.plan_ledger(metadata, lost, NAMES)
            after = plan.applied(metadata, made.moves)
            assert not ledger_metadata.faults(after)
            assert [first for first, _ in after.ensembles] == [first for first, _ in metadata.ensembles]
            if metadata.state is not LedgerState.CLOSED:
                assert after.ensembles[-1] == metadata.ensembles[-1], "the last fragment of an unclosed ledger"
            owed = [(move.target, entry) for move in made.moves for entries in move.entries for entry in entries]
            wanted = [
                (bookie, entry)
                for entry in fixed_entries(metadata)
                for old, bookie in zip(holders(metadata, entry), holders(after, entry), strict=True)
                if old != bookie
            ]
            assert sorted(owed) == sorted(wanted)
            unmoved = [old for entry in fixed_entries(metadata) for old in holders(after, entry) if old in lost]
            assert bool(unmoved) <= any(why is Blocker.NO_TARGET for _, why in made.blockers)
            assert not lost & {move.target for move in made.moves}
            seen += 1
    assert seen > 1_000


def test_copies_left_and_missing_entries_are_what_counting_finds() -> None:
    for metadata in small_ledgers():
        for lost in map(frozenset, itertools.chain(*(itertools.combinations(NAMES[:4], n) for n in range(4)))):
            left = [len(set(holders(metadata, entry)) - lost) for entry in fixed_entries(metadata)]
            assert plan.copies_left(metadata, lost) == min([*left, metadata.write_quorum])
            missing = sum(len(set(holders(metadata, entry)) & lost) for entry in fixed_entries(metadata))
            assert plan.missing_entries(metadata, lost) == missing
            assert plan.fixed_end(metadata) == len(fixed_entries(metadata))


@pytest.mark.parametrize(
    ("away", "mass_outage", "expected"),
    [
        ({}, False, ""),
        ({"a": 10.0}, False, ""),
        ({"a": 600.0}, False, "a"),
        ({"a": 600.0}, True, ""),
        ({"a": FOR_GOOD}, True, "a"),
        ({"a": 1.0, "b": 0.0}, True, "ab"),
        ({"a": 1.0, "b": 0.0}, False, "ab"),
        ({"a": 600.0, "d": 600.0}, False, "a"),
    ],
    ids=["none", "short", "grace", "outage", "retired", "single in outage", "single", "a stranger"],
)
def test_who_is_lost_to_a_ledger(away: dict[str, float], mass_outage: bool, expected: str) -> None:
    gone = {BookieId(bookie): away_s for bookie, away_s in away.items()}
    found = plan.lost_bookies(ledger((0, "abc")), gone, grace_s=600.0, mass_outage=mass_outage)
    assert "".join(sorted(found)) == expected


@pytest.mark.parametrize(("away", "bookies", "expected"), [(1, 4, False), (2, 4, True), (1, 3, True), (0, 0, False)])
def test_more_than_a_quarter_away_is_a_mass_outage(away: int, bookies: int, expected: bool) -> None:
    gone = {BookieId(f"b{number}"): 1_000.0 for number in range(away)} | {BookieId("retired"): FOR_GOOD}
    assert plan.is_mass_outage(gone, bookies) is expected


def test_an_empty_ledger_changes_hands_without_copies() -> None:
    made = plan.plan_ledger(ledger((0, "abc"), last=-1), frozenset((BookieId("a"),)), NAMES)
    assert [(move.target, move.entries) for move in made.moves] == [("d", ())]


def test_fragments_that_lost_the_same_bookie_get_the_same_one() -> None:
    made = plan.plan_ledger(
        ledger((0, "abc"), (2, "abd"), (4, "abc")), frozenset((BookieId("a"),)), tuple(map(BookieId, "de"))
    )
    assert [move.target for move in made.moves] == ["d", "e", "d"]


def test_what_cannot_be_repaired_is_named_with_the_reason() -> None:
    lost = frozenset((BookieId("a"),))
    assert plan.plan_ledger(ledger((0, "abc")), lost, NAMES[:3]).blockers == (("a", Blocker.NO_TARGET),)
    still = ledger((0, "abc"), (2, "abd"), state=LedgerState.OPEN)
    assert plan.plan_ledger(still, lost, NAMES).blockers == (("a", Blocker.OPEN),)
    recovering = ledger((0, "abc"), state=LedgerState.IN_RECOVERY)
    assert plan.plan_ledger(recovering, lost, NAMES).blockers == (("a", Blocker.IN_RECOVERY),)


def test_the_fewest_copies_come_first_then_the_smallest() -> None:
    lost = frozenset(map(BookieId, "ab"))
    ledgers = {
        1: ledger((0, "acd"), length=10),
        2: ledger((0, "abc"), length=1_000),
        3: ledger((0, "abd"), length=100),
        4: ledger((0, "abc"), last=-1),
    }
    order = sorted(plan.urgency(ledger_id, metadata, lost) for ledger_id, metadata in ledgers.items())
    assert [one.ledger_id for one in order] == [3, 2, 1, 4]
    assert order[0].missing_bytes == 200
