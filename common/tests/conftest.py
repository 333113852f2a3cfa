"""Fixtures of the common ground: real components from `itests/support`."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))  # `itests` is no installed package

from itests.support.fixtures import own_zookeeper, zookeeper  # noqa: E402  # needs the path above

__all__ = ["own_zookeeper", "zookeeper"]
