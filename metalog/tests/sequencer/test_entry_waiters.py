"""Who is answered by which entry: each rule, and every short sequence against a plain model."""

from __future__ import annotations

from itertools import product

import pytest

from boki_common import limits
from boki_common.errors import Overloaded
from boki_metalog.sequencer.entry_waiters import EntryWaiters


def test_commands_that_did_not_fit_wait_on_and_barriers_do_not() -> None:
    waiters: EntryWaiters[str] = EntryWaiters()
    for name in ("a", "b", "c"):
        waiters.order(name)
    waiters.barrier("x")
    waiters.taken(2)
    assert waiters.acked() == ["a", "b", "x"] and list(waiters.orders) == ["c"]


def test_barriers_are_bounded_and_those_of_the_gone_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BARRIERS_WAITING", 2)
    waiters: EntryWaiters[str] = EntryWaiters()
    waiters.order("a")
    waiters.barrier("x")
    waiters.barrier("y")
    with pytest.raises(Overloaded):
        waiters.barrier("z")
    waiters.forget_barriers(lambda name: name in ("a", "x"))
    waiters.barrier("z")
    assert waiters.clear() == ([], ["a", "y", "z"]), "a command keeps its place"


def test_every_short_sequence() -> None:
    """Beside it: when each asked, and when the entry that answers it began."""
    for steps in product(("order", "barrier", "entry", "ack"), repeat=6):
        waiters: EntryWaiters[int] = EntryWaiters()
        asked: dict[int, str] = {}
        answered: list[int] = []
        began = None
        for time, step in enumerate(steps):
            if step == "order":
                asked[time] = step
                waiters.order(time)
            elif step == "barrier":
                asked[time] = step
                waiters.barrier(time)
            elif step == "entry" and began is None:
                began = time
                waiters.taken(len(waiters.orders))
            elif step == "ack" and began is not None:
                expected = [one for kind in ("order", "barrier") for one in asked if asked[one] == kind and one < began]
                served = waiters.acked()
                assert served == [one for one in expected if one not in answered]
                answered += served
                began = None
        taken, left = waiters.clear()
        assert all(one < began for one in taken) if began is not None else not taken
        assert sorted(taken + left) == [one for one in asked if one not in answered]
