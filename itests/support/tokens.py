"""Cluster tokens for tests of real processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

SECRET: Final = "a-token-of-the-tests-0001"
OTHER: Final = "another-token-of-them-0002"


def write_token(file: Path, *tokens: str) -> Path:
    """Makes a file of its owner alone that holds tokens, or replaces it; never half of it."""
    new = file.with_suffix(".new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as content:
        content.write("\n".join(tokens or (SECRET,)) + "\n")
    new.replace(file)
    return file
