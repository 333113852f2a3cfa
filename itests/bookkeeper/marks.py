"""What tests beside Apache's programs need of a machine, and how long they may take also on a busy one."""

from __future__ import annotations

from typing import Final

import pytest

APACHE: Final = (pytest.mark.bookkeeper, pytest.mark.processes, pytest.mark.zookeeper)
SHARED: Final = [*APACHE, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]
"""On the cluster of the whole run."""
