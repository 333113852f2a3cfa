"""The museum of bugs: each is found where it is planted, and nowhere else. See docs/museum.md."""

from __future__ import annotations

import pytest

from itests.museum import page
from itests.museum.exhibit import CLUSTER, HUNT_LIMIT_S, LEDGERS, Exhibit, Hunt, Scenario, planted, search
from itests.museum.exhibits import EXHIBITS
from itests.museum.found import findings
from itests.museum.hunt import broken, violations_of
from itests.mutations.mutation import ROOT, check_test_exists, file_of

SIMULATED = [one for one in EXHIBITS if isinstance(one.found, Hunt)]
AIMED_LIMIT_S = 60.0


def runs(world: str) -> list[tuple[int, str]]:
    """(seed, profile) that showed a planted bug."""
    found = findings()
    chosen = {
        (found[one.name].seed or 1, one.found.profile)
        for one in SIMULATED
        if isinstance(one.found, Hunt) and one.found.world == world and one.name in found
    }
    return sorted(chosen)


def name_of(one: Exhibit) -> str:
    return one.name


def test_names_are_unique_and_five_systems_are_shown() -> None:
    assert len({one.name for one in EXHIBITS}) == len(EXHIBITS) >= 15
    assert len({one.system for one in EXHIBITS}) >= 5


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=name_of)
def test_what_a_mutation_changes_is_in_the_code_once(exhibit: Exhibit) -> None:
    assert exhibit.mutation.edits
    for old, new in exhibit.mutation.edits:
        assert old != new
        file_of(ROOT, exhibit.mutation, old)
    if isinstance(exhibit.found, Scenario):
        check_test_exists(ROOT, exhibit.mutation)


def test_the_page_is_up_to_date() -> None:
    assert page.PAGE.read_text("utf-8") == page.text(), "run: python -m itests.museum.page"


def test_every_exhibit_was_found_within_the_limit() -> None:
    found = findings()
    assert {one.name for one in EXHIBITS} == set(found), "run: python -m itests.museum.record"
    assert all(one.seconds < HUNT_LIMIT_S for one in found.values())
    assert found["fencing-flag-off-the-recovery-reads"].seconds < AIMED_LIMIT_S


@pytest.mark.parametrize(("seed", "profile"), runs(LEDGERS))
def test_without_the_bug_the_seed_holds(seed: int, profile: str) -> None:
    assert not violations_of(LEDGERS, seed, profile)


@pytest.mark.nightly
@pytest.mark.parametrize(("seed", "profile"), runs(CLUSTER))
def test_without_the_bug_the_seed_of_a_whole_cluster_holds(seed: int, profile: str) -> None:
    assert not violations_of(CLUSTER, seed, profile)


def test_a_rule_is_looked_for_by_its_name() -> None:
    said = ["1.0 s  [1 acked] a", "2.0 s  [liveness] b"]
    assert broken(said, []) == said
    assert broken(said, ["liveness", "crash"]) == said[1:]
    assert not broken(said, ["2 closed"])


@pytest.mark.nightly
@pytest.mark.processes
@pytest.mark.timeout(1_500)
@pytest.mark.parametrize("exhibit", EXHIBITS, ids=name_of)
def test_where_it_is_planted_the_bug_is_found(exhibit: Exhibit) -> None:
    """First under the seed that showed it before; seeds move with the code, so then from 1 on."""
    seed = findings()[exhibit.name].seed
    with planted(exhibit.mutation) as root:
        found = search(root, exhibit, seeds=() if seed is None else (seed,))
        if not found.bug and seed is not None:
            found = search(root, exhibit)
    assert found.bug, found.text
