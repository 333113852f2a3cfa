"""Trials that wait most of their time begin first: others run beside them, and at the end of a run nothing would."""

from __future__ import annotations

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """After they were shuffled."""
    items.sort(key=lambda item: item.get_closest_marker("waits") is None)
