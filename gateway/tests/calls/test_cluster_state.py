"""What the history takes from a state: of those that answer only."""

from __future__ import annotations

from boki_gateway.calls.cluster_state import ClusterState
from boki_gateway.testing import cluster_state


def test_numbers_of_the_whole() -> None:
    state = cluster_state()
    assert (state.records, state.lag_entries) == (1_204_331, 14)
    assert state.entries == {(0, 7): 4_410, (1, 6): 900}
    for part in (state.engines[0], state.engines[1], state.sequencers[0]):
        part.up = False
    assert (state.records, state.lag_entries, state.entries) == (None, None, {(1, 6): 900})


def test_of_nothing_nothing_is_known() -> None:
    assert (ClusterState().records, ClusterState().lag_entries, ClusterState().entries) == (None, None, {})
