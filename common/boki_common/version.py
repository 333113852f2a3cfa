"""The version of this package, as pyproject.toml has it (a test holds them equal): to be told without reading a file."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
