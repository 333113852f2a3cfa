"""Workflows started by name, with and without their code in the program."""

from __future__ import annotations

import pytest

from bokiflow import NotRegistered
from bokiflow.runtime.calls import named
from libs.tests.flow.shop import Shop


async def test_a_known_one_is_the_programs_own_and_an_unknown_one_a_stand_in() -> None:
    app = Shop().app
    assert named(app, "wait") is app.find("wait")
    elsewhere = named(app, "of another program")
    assert (elsewhere.name, elsewhere.version) == ("of another program", "")
    with pytest.raises(NotRegistered, match="another program"):
        await elsewhere("x", y=1)
