"""Streams of numbers follow from seed and name alone."""

from __future__ import annotations

from boki_sim.world.randomness import SimRandom, stream


def test_streams_are_independent_and_repeatable() -> None:
    def numbers(*name: str | int) -> list[float]:
        made = stream(7, *name)
        return [made.random() for _ in range(5)]

    assert numbers("disk", 1) == numbers("disk", 1)
    assert numbers("disk", 1) != numbers("disk", 2)
    assert stream(7, "x").random() == 0.28723530386025, "a seed means the same run for ever"


def test_the_port_over_a_stream() -> None:
    port, again = SimRandom(stream(1, "a")), SimRandom(stream(1, "a"))
    assert port.token(16) == again.token(16)
    assert all(0 <= port.below(3) < 3 for _ in range(50))
    assert sorted(port.shuffled(range(20))) == list(range(20))
