"""Apps by their names."""

from __future__ import annotations

import pytest

from boki_common.errors import UsageError
from bokiflow.named_app import named_app
from libs.tests.flow import lives


def test_an_app_is_found_where_python_finds_its_module() -> None:
    assert named_app("libs.tests.flow.lives:app") is lives.app


@pytest.mark.parametrize(
    "name",
    ["libs.tests.flow.lives", ":app", "libs.tests.flow.nowhere:app", "libs.tests.flow.lives:nobody", "json:dumps"],
)
def test_what_is_no_app_says_what_was_expected(name: str) -> None:
    with pytest.raises(UsageError, match=r"expected|cannot be found"):
        named_app(name)
