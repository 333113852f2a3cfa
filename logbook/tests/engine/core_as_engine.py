"""A core in the place of its engine, for tests of what is between the two and their connections."""

from __future__ import annotations

from typing import Any

from boki_common.engine.admission import TAKEN
from boki_logbook.core import EngineCore
from boki_logbook.engine_status import status_of
from boki_logbook.scan.handles import ScanHandles


class CoreAsEngine:
    """What connections ask of an engine, of its core alone."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self.admission = TAKEN
        scans = ScanHandles(core.capture)
        self.scan, self.end_scan = scans.answer, scans.left

    def status(self) -> dict[str, Any]:
        return status_of(self._core)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)
