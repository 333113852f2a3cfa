"""The version of this package, equal to the one of pyproject.toml (a test holds this): known without reading a file."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
