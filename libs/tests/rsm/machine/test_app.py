"""Apps: names, and classes that do not belong to one."""

from __future__ import annotations

import pytest

from boki_common.errors import InvalidArgument
from bokirsm import App, DeclarationError, Event, Machine, State, WrongCall
from libs.tests.rsm.words import Counter, Freq, Max


def test_an_app_knows_its_classes() -> None:
    app = App("words", [Counter, Max])
    assert list(app.machines) == ["Counter", "Max"] and app.declaration(Max) is Max.declaration
    with pytest.raises(InvalidArgument, match="add it to App"):
        App("words", [Max]).declaration(Counter)
    for name in ("", "a/b", "a:b", "x" * 61):
        with pytest.raises(InvalidArgument, match="the name of an app"):
            App(name, [])


def test_two_classes_of_one_name_are_refused() -> None:
    class Other(Machine[Freq], name="Max"):
        run = State(start=True, ignore=(Event,))

    with pytest.raises(DeclarationError, match="give one of them name="):
        App("words", [Max, Other])
    with pytest.raises(WrongCall, match="a class of machines"):
        App("words", [Freq])  # type: ignore[list-item]
