"""The digest is of every line; only the newest are kept unless all are wanted."""

from __future__ import annotations

from boki_sim.world.loop import SimLoop
from boki_sim.world.trace import NEWEST_LINES, Trace


def traced(lines: int, *, keep: bool = False, last: str = "x") -> Trace:
    loop = SimLoop(1)
    trace = Trace(loop, keep=keep)
    for number in range(lines):
        trace.add("p", "k", str(number))
    trace.add("p", "k", last)
    loop.end()
    return trace


def test_one_different_line_is_another_digest() -> None:
    assert traced(2_000).digest() == traced(2_000).digest()
    assert traced(2_000).digest() != traced(2_001).digest()
    assert traced(2_000).digest() != traced(2_000, last="y").digest()


def test_how_many_lines_are_kept() -> None:
    assert len(traced(5_000).lines()) == NEWEST_LINES
    kept = traced(5_000, keep=True).lines()
    assert (len(kept), kept[-1]) == (5_001, "1000.0000000 p k x")


def test_a_whole_line_is_as_good_as_its_parts() -> None:
    digests = []
    for whole in (False, True):
        loop = SimLoop(1)
        trace = Trace(loop)
        for number in range(1_000):
            if whole:
                trace.note((loop.now, "p", "k", number))
            else:
                trace.add("p", "k", number)
        digests.append(trace.digest())
        loop.end()
    assert digests[0] == digests[1]


def test_values_are_in_the_digest_whichever_objects_they_are() -> None:
    """Whether two equal values are one object depends on the interpreter."""
    digests = []
    for name in ("bookie", "".join(["boo", "kie"])):
        loop = SimLoop(1)
        trace = Trace(loop)
        trace.add("bookie", "disk", name, 0.25, 7)
        digests.append(trace.digest())
        assert trace.lines() == ["1000.0000000 bookie disk bookie 0.250000 7"]
        loop.end()
    assert digests[0] == digests[1]
