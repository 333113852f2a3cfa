"""Full disks are drawn, with restarts of their bookies meanwhile; and clusters hold under them."""

from __future__ import annotations

import pytest

from boki_sim.faults.faults import PROFILES, Fault, Targets
from boki_sim.faults.full_disks import PROFILE, SHARES, while_full
from boki_sim.run import run_seed
from boki_sim.world.randomness import stream

TARGETS = Targets(
    ("bookie-1", "bookie-2", "bookie-3"), ("sequencer-1",), ("engine-1",), ("client-1",), lossy="bookie-2"
)


def scripts(profile: str) -> list[list[Fault]]:
    return [while_full(stream(seed, "d"), profile, TARGETS, seconds=20) for seed in range(200)]


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_a_share_of_the_runs_of_a_profile_has_them(profile: str) -> None:
    drawn = scripts(profile)
    assert drawn == scripts(profile)
    share = SHARES.get(profile, 0.0)
    assert abs(sum(map(bool, drawn)) / len(drawn) - share) < 0.12
    faults = [fault for script in drawn for fault in script]
    assert {fault.kind for fault in faults} <= {*PROFILES[profile], "disk-full"}
    assert all(script == sorted(script, key=lambda fault: fault.at) for script in drawn)
    assert all(0 <= fault.at < 20 and fault.target in TARGETS.bookies for fault in faults)


def test_bookies_end_while_their_disks_are_full_and_some_disks_have_no_byte_left() -> None:
    full = restarted = all_at_once = 0
    for script in scripts(PROFILE):
        fills = [fault for fault in script if fault.kind == "disk-full"]
        full += any(fault.amount == 0 for fault in fills)
        all_at_once += len(fills) == 3 and len({fault.at for fault in fills}) == 1
        for other in script:
            restarted += other.kind != "disk-full" and any(
                one.target == other.target and one.at <= other.at < one.at + one.seconds for one in fills
            )
    assert full > 80
    assert all_at_once > 30
    assert restarted > 400


@pytest.mark.timeout(120)
def test_clusters_hold_while_disks_are_full() -> None:
    met = 0
    for seed in range(1, 9):
        outcome = run_seed(seed, PROFILE, work_s=4.0)
        assert outcome.ok, (outcome.violations, outcome.replay)
        met += sum(count for what, count in outcome.happened.items() if what.startswith("disk-full"))
    assert met > 8
