"""Scripts of faults: drawn by a seed, written as text and read back."""

from __future__ import annotations

import pytest

from boki_sim.faults.faults import (
    _WAYS,
    AT_BARRIERS,
    AT_BARRIERS_MOST,
    DAMAGE,
    KINDS,
    PROCESSES,
    PROFILES,
    SLEEP,
    SURE,
    WAITED_FOR,
    WHILE_CARRIED,
    Fault,
    Targets,
    asleep,
    at_barriers,
    drains,
    draw,
    from_text,
    to_text,
    unaware,
)
from boki_sim.world.errors import SimulationError
from boki_sim.world.randomness import stream
from boki_sim.world.steps import BARRIER_ANSWERED, BARRIER_ASKED, ENTRY_CARRIED, IDLE, STEPS

LED_TO = {step for way in _WAYS if way.means for step in way.steps} - set(_WAYS[0].steps) - set(_WAYS[1].steps)

TARGETS = Targets(
    ("bookie-1", "bookie-2", "bookie-3"), ("sequencer-1",), ("engine-1",), ("client-1",), lossy="bookie-2"
)


def scripts(profile: str) -> list[list[Fault]]:
    return [draw(stream(seed, "f"), profile, TARGETS, seconds=20) for seed in range(60)]


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_a_profile_draws_its_own_kinds_and_each_seed_a_mix_of_them(profile: str) -> None:
    drawn = scripts(profile)
    drawn_kinds = {fault.kind for script in drawn for fault in script}
    assert drawn_kinds >= set(PROFILES[profile])
    assert drawn_kinds <= {*PROFILES[profile], *PROCESSES}
    if profile != "calm":
        assert len({tuple(sorted({fault.kind for fault in script})) for script in drawn}) > 5
        assert all(script == sorted(script, key=lambda fault: fault.at) for script in drawn)
        assert all(0 <= fault.at < 20 for script in drawn for fault in script)
    assert scripts(profile) == drawn


def test_engines_do_not_reach_each_other_for_seconds_in_some_runs() -> None:
    deaf = [[fault for fault in script if fault.kind == "deaf" and fault.amount == 1] for script in scripts("harsh")]
    assert 10 < sum(any(fault.seconds >= 4 for fault in found) for found in deaf) < 50


def test_every_step_has_its_turn_and_profiles_lead_to_it() -> None:
    assert set(WAITED_FOR) == {*STEPS} - {IDLE, ENTRY_CARRIED, BARRIER_ASKED, BARRIER_ANSWERED}
    for turn, step in enumerate(WAITED_FOR):
        plain, owed = (
            draw(stream(5, "f"), "harsh", TARGETS, seconds=20, turn=turn) for turn in (None, turn + len(WAITED_FOR))
        )
        more = [fault for fault in owed if fault not in plain]
        aimed = [fault for fault in more if fault.step == step]
        assert len(aimed) == 1
        assert aimed[0].kind in SURE
        assert all(fault.at == aimed[0].at for fault in more), "what leads there comes with it"
        assert (len(more) > 1) == (step in LED_TO), step


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_in_some_runs_faults_wait_for_barriers(profile: str) -> None:
    drawn = [at_barriers(stream(seed, "b"), profile, TARGETS, seconds=20) for seed in range(200)]
    assert drawn == [at_barriers(stream(seed, "b"), profile, TARGETS, seconds=20) for seed in range(200)]
    aimed = [script for script in drawn if script and script[0].step]
    if profile == "calm":
        assert not any(drawn)
        return
    assert 30 < len(aimed) < 100
    assert all(len(script) <= AT_BARRIERS_MOST for script in aimed)
    faults = [fault for script in aimed for fault in script]
    assert {fault.step for fault in faults} == {BARRIER_ASKED, BARRIER_ANSWERED}
    assert {fault.kind for fault in faults} == {*AT_BARRIERS} & {*PROFILES[profile]}
    assert all(0 <= fault.at < 20 for fault in faults)
    others = sum(bool(script) and not script[0].step for script in drawn)
    assert (5 < others < 40) if profile == "harsh" else not others, "cut off in every way"


def test_an_unaware_sequencer_sees_no_new_term_and_perhaps_one_bookie() -> None:
    reachable = []
    for seed in range(40):
        script = unaware(stream(seed, "u"), 20, TARGETS)
        assert {fault.target for fault in script if fault.kind == "cut-off"} == {"sequencer-1", TARGETS.engines[0]}
        clogged = {fault.target for fault in script if fault.kind == "clog"}
        assert {f"{one}>sequencer-1" for one in TARGETS.sequencers[1:]} <= clogged
        assert all(">".join(reversed(pair.split(">"))) in clogged for pair in clogged), "both ways"
        assert f"sequencer-1>{TARGETS.engines[0]}" not in clogged
        reachable.append([one for one in TARGETS.bookies if f"sequencer-1>{one}" not in clogged])
        assert len({(fault.at, fault.seconds) for fault in script}) == 1
    assert {len(one) for one in reachable} == {1, len(TARGETS.bookies)}


@pytest.mark.parametrize("profile", ["network", "disk", "metadata", "harsh"])
def test_where_entries_are_carried_faults_wait_for_that_and_no_other_draw_changes(profile: str) -> None:
    for seed in range(20):
        plain, carrying = (
            draw(stream(seed, "f"), profile, TARGETS, seconds=20, turn=seed, carrying=carrying)
            for carrying in (False, True)
        )
        more = [fault for fault in carrying if fault.step == ENTRY_CARRIED]
        assert [fault for fault in carrying if fault.step != ENTRY_CARRIED] == plain
        assert more and {fault.kind for fault in more} <= {*WHILE_CARRIED, "roll"} & {*PROFILES[profile]}


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_in_half_of_the_harsh_runs_clocks_step_and_machines_sleep(profile: str) -> None:
    drawn = [asleep(stream(seed, "a"), profile, TARGETS, seconds=20) for seed in range(100)]
    assert drawn == [asleep(stream(seed, "a"), profile, TARGETS, seconds=20) for seed in range(100)]
    if profile != "harsh":
        assert not any(drawn)
        return
    assert 30 < sum(map(bool, drawn)) < 70
    faults = [fault for script in drawn for fault in script]
    assert {fault.kind for fault in faults} == {*SLEEP}
    hours = [fault.amount / 3_600_000 for fault in faults if fault.kind == "step"]
    assert min(hours) < -24 and max(hours) > 24 * 7
    assert {fault.target for fault in faults} == {*TARGETS.everybody}
    assert {bool(fault.step) for fault in faults if fault.kind == "sleep"} == {True, False}


@pytest.mark.parametrize("profile", ["harsh", "calm"])
def test_drains_are_drawn_beside_all_others(profile: str) -> None:
    drawn = [drains(stream(seed, "d"), profile, seconds=20) for seed in range(100)]
    assert drawn == [drains(stream(seed, "d"), profile, seconds=20) for seed in range(100)]
    if profile == "calm":
        assert not any(drawn)
        return
    assert 60 < sum(map(bool, drawn)) < 90
    faults = [fault for script in drawn for fault in script]
    assert {(fault.kind, fault.target) for fault in faults} == {("drain", "all")}
    assert {fault.amount for fault in faults} == {0.0, 1.0}


def test_only_one_bookie_may_lose_data() -> None:
    assert {fault.target for script in scripts("harsh") for fault in script if fault.kind in DAMAGE} == {"bookie-2"}


def test_scripts_survive_as_text() -> None:
    script = scripts("harsh")[3]
    assert script
    assert from_text("# a comment\n\n" + to_text(script)) == script


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"at": 1, "kind": "kill", "target": "x", "step": "sleeps"}', "found 'sleeps'"),
        ("{", "line 1"),
        ('{"at": 1}', "line 1"),
        ('{"at": 1, "kind": "flood", "target": "x"}', "found 'flood'"),
    ],
)
def test_a_wrong_line_is_named(line: str, message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        from_text(line)


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(SimulationError, match=r"expected a profile of calm, .*found 'mild'"):
        draw(stream(1, "f"), "mild", TARGETS, seconds=1)


def test_every_kind_is_in_the_table_of_kinds() -> None:
    import boki_sim.faults.faults

    assert boki_sim.faults.faults.__doc__ is not None
    assert [kind for kind in KINDS if kind not in boki_sim.faults.faults.__doc__] == []
