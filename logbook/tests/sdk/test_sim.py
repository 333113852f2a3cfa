"""`boki.sim.run`: one program, one seed, a real cluster on virtual time."""

from __future__ import annotations

from typing import Any

import pytest

import boki.sim


async def program(cluster: Any) -> tuple[int, bytes]:
    async with await cluster.connect() as client:
        seqnum = await client.book("orders").append(b"hello")
        record = await client.book("orders").read_at(seqnum)
        assert record is not None
        return seqnum, bytes(record.data)


@pytest.mark.blocking_allowed  # the simulator's guard stands in for it
def test_a_program_runs_on_a_simulated_cluster() -> None:
    seqnum, data = boki.sim.run(program, seed=1, faults="calm", seconds=1)
    assert seqnum > 0
    assert data == b"hello"
