"""Scripts of faults: drawn by a seed, written as text and read back."""

from __future__ import annotations

import pytest

from boki_sim.faults import (
    _WAYS,
    DAMAGE,
    KINDS,
    PROCESSES,
    PROFILES,
    SURE,
    WAITED_FOR,
    WHILE_CARRIED,
    Fault,
    Targets,
    draw,
    from_text,
    to_text,
)
from boki_sim.loop import SimulationError
from boki_sim.randomness import stream
from boki_sim.steps import ENTRY_CARRIED, IDLE, STEPS

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


def test_engines_do_not_hear_each_other_for_seconds_in_some_runs() -> None:
    deaf = [[fault for fault in script if fault.kind == "deaf" and fault.amount == 1] for script in scripts("harsh")]
    assert 10 < sum(any(fault.seconds >= 4 for fault in found) for found in deaf) < 50


def test_every_step_has_its_turn_and_profiles_lead_to_it() -> None:
    assert set(WAITED_FOR) == {*STEPS} - {IDLE, ENTRY_CARRIED}
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


@pytest.mark.parametrize("profile", ["network", "disk", "metadata", "harsh"])
def test_where_entries_are_carried_some_faults_more_wait_for_that_and_no_other_changes(profile: str) -> None:
    for seed in range(20):
        plain, carrying = (
            draw(stream(seed, "f"), profile, TARGETS, seconds=20, turn=seed, carrying=carrying)
            for carrying in (False, True)
        )
        more = [fault for fault in carrying if fault.step == ENTRY_CARRIED]
        assert [fault for fault in carrying if fault.step != ENTRY_CARRIED] == plain
        assert more and {fault.kind for fault in more} <= {*WHILE_CARRIED, "roll"} & {*PROFILES[profile]}


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
    import boki_sim.faults

    assert boki_sim.faults.__doc__ is not None
    assert [kind for kind in KINDS if kind not in boki_sim.faults.__doc__] == []
