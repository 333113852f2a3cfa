"""States: what declares their handlers."""

from __future__ import annotations

import pytest

from bokirsm import DeclarationError, State
from libs.tests.rsm.words import Counter, Freq, Init


def test_a_state_knows_its_handlers() -> None:
    assert Counter.waiting.handlers == {Init: "setup"} and repr(Counter.waiting) == "State('waiting')"
    state = State()

    @state.on(Freq, Init)
    def both(self: Counter, e: Freq | Init) -> None: ...

    assert state.handlers == {Freq: "both", Init: "both"}


def test_only_event_classes_are_handled() -> None:
    with pytest.raises(DeclarationError, match="found none"):
        State().on()  # type: ignore[call-overload]
    with pytest.raises(DeclarationError, match="expected an event class in on"):
        State().on(int)(print)
    state = State()
    state.exit(test_a_state_knows_its_handlers)  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="one exit of a state"):
        state.exit(test_only_event_classes_are_handled)  # type: ignore[arg-type]
