"""The base class of machines: what a handler may assign."""

from __future__ import annotations

import pytest

from bokirsm import Event, Machine, Register, State, UndeclaredField
from bokirsm.machine.handling import HandlerFailed
from libs.tests.rsm.one_machine import OneMachine


class Set(Event):
    name: str


class Guarded(Machine[Set]):
    LIMIT = 5
    count: Register[int] = Register(0)
    run = State(start=True)

    @run.on(Set)
    def set(self, e: Set) -> None:
        setattr(self, e.name, self.LIMIT)


def test_only_declared_fields_are_assigned() -> None:
    one = OneMachine(Guarded)
    assert list(one.give(Set("count")).registers) == ["count"]
    for name in ("total", "LIMIT", "run", "_handling", "me"):
        with pytest.raises(HandlerFailed, match=f"found self.{name} = ") as failed:
            one.give(Set(name))
        assert isinstance(failed.value.__cause__, UndeclaredField)
