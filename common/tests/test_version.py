"""One version, stated in two places."""

from __future__ import annotations

import tomllib
from pathlib import Path

from boki_common.version import VERSION


def test_it_is_that_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION
