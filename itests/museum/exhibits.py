"""All exhibits, by system, and what cannot be shown yet."""

from __future__ import annotations

from typing import Final

from itests.museum import of_barriers, of_bookkeeper, of_carried, of_drafts, of_others
from itests.museum.exhibit import Exhibit

EXHIBITS: Final[tuple[Exhibit, ...]] = (
    *of_bookkeeper.EXHIBITS,
    *of_others.EXHIBITS,
    *of_drafts.EXHIBITS,
    *of_carried.EXHIBITS,
    *of_barriers.EXHIBITS,
)

NOT_YET: Final[tuple[tuple[str, str, str], ...]] = (
    ("Apache BookKeeper", "#4607: an entry log with a damaged header looked empty and was deleted",
     ("what lives in a file follows from the index, so there is no line to take out; "
     "`bookie/tests/space/test_compaction.py::test_a_file_whose_header_is_damaged_is_not_empty` holds it")),
    ("Restate", "#4463: a lost node, and repair that never ends", "no repair of copies yet"),
    ("Restate", "#2689: repair of what was trimmed", "no repair of copies yet; what is trimmed goes by whole terms, whose records say so"),
    ("Restate", "#2615: repair begins one entry too late", "no repair of copies yet"),
)  # fmt: skip
"""System, issue, why not."""


def exhibit(name: str) -> Exhibit:
    """The exhibit of that name. Raises KeyError."""
    return {one.name: one for one in EXHIBITS}[name]
