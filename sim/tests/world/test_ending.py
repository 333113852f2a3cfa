"""How a simulation is thrown away."""

from __future__ import annotations

import gc

from boki_sim.world.ending import KEPT_OBJECTS, uncollected


def test_what_a_long_process_keeps_is_not_looked_through_by_each_collection() -> None:
    with uncollected():
        pass
    kept = [[number] for number in range(KEPT_OBJECTS + 1)]
    with uncollected():
        assert len(gc.get_objects()) < KEPT_OBJECTS < len(kept)
    assert gc.isenabled()
