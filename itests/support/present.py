"""Records that a test expects to be there."""

from __future__ import annotations

import boki


def present(record: boki.Record | None) -> boki.Record:
    """The record that was read; fails when there is none."""
    assert record is not None
    return record
