"""What searching for each planted bug came to, the last time: `found.json`, written by `python -m itests.museum.record`.

{"<exhibit>": {"seed": 3, "seconds": 1.4}}         seed null: a scenario, which has none
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

FILE: Final = Path(__file__).with_name("found.json")


class Finding(NamedTuple):
    """Seconds are of one core of the machine that searched, from seed 1 on."""

    seed: int | None
    seconds: float


def findings() -> dict[str, Finding]:
    """By exhibit."""
    return {name: Finding(**one) for name, one in json.loads(FILE.read_text("utf-8")).items()}


def write(found: Mapping[str, Finding]) -> None:
    """Replaces the file."""
    rows = {name: found[name]._asdict() for name in sorted(found)}
    FILE.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
