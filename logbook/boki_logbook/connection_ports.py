"""What a connection asks of its engine, as a small protocol; and how it is greeted."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from boki_common.engine.admission import Admission
from boki_common.engine.engine_protocol import Token
from boki_common.metrics import Counter
from boki_common.records.record_batch import RecordBatch
from boki_logbook.writers.early_conflicts import EarlyConflicts


class Hello(msgspec.Struct):
    """The first message of an SDK, or of an engine. `role`: None in versions that had none."""

    versions: list[int]
    features: list[str] = []
    auth: Any = None
    role: Any = None

    def __repr__(self) -> str:
        """Without the token."""
        return f"Hello(versions={self.versions}, features={self.features}, role={self.role!r})"


class EngineState(Protocol):
    """What a connection asks of its engine."""

    @property
    def incarnation(self) -> str: ...

    def status(self) -> dict[str, Any]: ...

    @property
    def reads(self) -> Counter:
        """Counts range reads."""

    @property
    def cluster(self) -> str:
        """What the cluster calls itself; "": it has no name."""

    def now_ms(self) -> int:
        """Wall clock: writers that SDKs make are born then."""

    @property
    def admission(self) -> Admission:
        """Whether new appends are taken."""

    def scan(self, owner: object, body: memoryview) -> bytes:
        """The answer to a SCAN of a connection, `owner`. Raises ProtocolError, Overloaded, NotPermitted."""

    def end_scan(self, owner: object) -> None:
        """End the scan of a connection that ended."""

    def check_named(self, batch: RecordBatch) -> None:
        """Check the named writers of a batch before it is ordered. Raises TooManyWriters."""

    def early_conflicts(self, token: Token, batch: RecordBatch) -> EarlyConflicts | None:
        """The records of a batch that have lost already."""
