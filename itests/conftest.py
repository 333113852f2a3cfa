"""What suites of several folders share: one cluster in containers for a whole run, started when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from boki.testing.containers import BokiCluster


@pytest.fixture(scope="session")
def containers() -> Iterator[BokiCluster]:
    """A whole cluster. Who harms it mends it."""
    # Not above: it costs every run a second.
    from boki.testing.containers import BokiCluster, unavailable

    reason = unavailable()
    if reason:
        pytest.skip(f"{reason}; make test-containers, as root, brings both")
    with BokiCluster() as cluster:
        yield cluster
