"""Who runs workflows in this process, as those see it who need one: a worker, or nobody."""

from __future__ import annotations

from typing import Protocol

from boki_common.runtime.code_watch import CodeWatch
from bokiflow.execute.under_way import BodyHost
from bokiflow.model.flow_events import Ended, Started
from bokilib.errors import AppendUnknown


class Hosting(Protocol):
    """Who runs workflows in this process, for who starts them."""

    def owner_of(self, id: str) -> tuple[str, int]: ...

    def began(self, started: Started, seqnum: int) -> None: ...

    def lost(self, partition: int, claim: int) -> None: ...

    def unsure(self, id: str, error: AppendUnknown) -> None: ...

    def runs(self, id: str) -> bool: ...


class Nobody:
    """No worker is in this process."""

    def owner_of(self, id: str) -> tuple[str, int]:
        """Nobody here."""
        return "", 0

    def began(self, started: Started, seqnum: int) -> None:
        """Others will run it."""

    def lost(self, partition: int, claim: int) -> None:
        """Nothing to lose."""

    def unsure(self, id: str, error: AppendUnknown) -> None:
        """Others will see."""

    def runs(self, id: str) -> bool:
        """Nothing does."""
        return False


class Host(BodyHost, Protocol):
    """What executors need of their worker."""

    @property
    def name(self) -> str: ...

    @property
    def watch(self) -> CodeWatch | None:
        """The thread that stops code which keeps the event loop from running; None: nothing does."""

    def stuck(self, id: str, claim: int, stack: str) -> None:
        """A workflow's code, run under that claim, keeps the event loop from running. Called by the watching thread."""

    def ended(self, id: str, ended: Ended) -> None:
        """It ended, and that is in the log."""

    def parked(self, id: str) -> None:
        """Somebody else runs it now."""

    def blocked(self, id: str, error: BaseException, claim: int, carried_ms: int) -> None:
        """It cannot go on here; it was held by that claim. `carried_ms`: when its oldest record was written."""
