"""Order of the tests: trials that mostly wait start first, so that other tests run beside them."""

from __future__ import annotations

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the tests marked `waits` to the front, after other plugins have shuffled them."""
    items.sort(key=lambda item: item.get_closest_marker("waits") is None)
