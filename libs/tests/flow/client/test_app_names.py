"""Apps by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from boki_common.errors import UsageError
from bokiflow.client.app import named_app
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


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ('import json\n\nraise ValueError("no such table")', r"ValueError: no such table \(FILE, line 3\)"),
        ('import json\n\njson.loads("{")', r"JSONDecodeError: Expecting property name .* \(FILE, line 3\)"),
        ("x = 1\nx = = 2", r"SyntaxError: invalid syntax \(FILE, line 2\)"),
        ("import sys\n\nsys.exit(3)", r"SystemExit: 3 \(FILE, line 3\)"),
        ("import nowhere", r"ModuleNotFoundError: No module named 'nowhere' \(FILE, line 1\)"),
        ("from json import nothing", r"ImportError: cannot import name 'nothing' .* \(FILE, line 1\)"),
        ('from bokiflow import App\nApp("")', r"InvalidArgument: .* \(FILE, line 2\)"),
    ],
)
def test_a_module_whose_import_raises_says_so_with_file_and_line(
    code: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "shop_that_raises.py"
    file.write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError) as raised:
        named_app("shop_that_raises:app")
    expected = f"importing 'shop_that_raises' failed: {said.replace('FILE', re.escape(str(file)))}"
    assert re.fullmatch(expected, str(raised.value))
