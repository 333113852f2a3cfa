"""What is drawn for hosts: of the profile's kinds, within the time, by their names."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_sim.faults.faults import KINDS, PROFILES, Fault
from boki_sim.faults.host_faults import ABSENT, HOST_KINDS, MEETS_HOSTS, STEPS, draw, host_of, of_host
from boki_sim.world.errors import SimulationError
from boki_sim.world.steps import STEPS as ALL_STEPS

OTHERS = ["engine-1", "engine-2"]


@given(st.integers(0, 10_000), st.sampled_from(sorted(PROFILES)), st.floats(0, 30))
def test_faults_are_of_the_profile_of_this_host_and_of_its_time(seed: int, profile: str, begun: float) -> None:
    script = draw(random.Random(seed), profile, "worker", OTHERS, begun=begun, seconds=20.0)
    assert script == draw(random.Random(seed), profile, "worker", OTHERS, begun=begun, seconds=20.0)
    assert [fault.at for fault in script] == sorted(fault.at for fault in script)
    for fault in script:
        assert fault.kind in HOST_KINDS[profile]
        assert host_of(fault) == "worker"
        assert round(begun, 3) - 0.001 <= fault.at <= 20.001
        assert fault.step in ("", *STEPS)


def test_every_kind_is_drawn_and_calm_is_calm() -> None:
    drawn = {
        fault.kind
        for seed in range(200)
        for fault in draw(random.Random(seed), "harsh", "w", OTHERS, begun=0, seconds=30)
    }
    assert drawn == MEETS_HOSTS <= set(KINDS)
    assert all(not draw(random.Random(seed), "calm", "w", OTHERS, begun=0, seconds=30) for seed in range(20))
    assert HOST_KINDS.keys() == PROFILES.keys()
    assert set(STEPS) <= set(ALL_STEPS)
    assert ABSENT in KINDS


def test_without_others_nobody_is_cut_off_from_them() -> None:
    kinds = {
        fault.kind for seed in range(50) for fault in draw(random.Random(seed), "network", "w", [], begun=0, seconds=30)
    }
    assert kinds == {"isolate", "slow-link", "pause", "kill"}


def test_an_unknown_profile_is_named() -> None:
    with pytest.raises(SimulationError, match="found 'mild'"):
        draw(random.Random(1), "mild", "w", OTHERS, begun=0, seconds=1)


def test_a_script_gives_each_host_its_part() -> None:
    script = [
        Fault(1, "kill", "a"),
        Fault(2, "clog", "a>engine-1"),
        Fault(3, "kill", "b"),
        Fault(4, "kill", "bookie-1"),
    ]
    assert of_host(script, "a") == script[:2]
    assert of_host(script, "b") == [script[2]]
