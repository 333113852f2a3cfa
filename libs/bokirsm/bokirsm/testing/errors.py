"""Errors of the tester, and the faults that it finds."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from boki_common.errors import UsageError

FaultKind: TypeAlias = Literal["handler", "client", "stuck", "monitor", "liveness", "leak", "uncontrolled"]


class Diverged(UsageError):
    """A program did not take the decisions that it took before: it has changed, or has choices that the tester does not control."""


class BugFound(AssertionError):
    """A run of the tester found a fault of the program. Its text is the fault, the story of the run, and how to replay it.

    Attributes:
        story: the fault and the story.
    """

    def __init__(self, story: str, replays: str = "") -> None:
        super().__init__(f"{story}\n\n{replays}" if replays else story)
        self.story: Final = story


class Fault(Exception):
    """A fault that a run found, and that ends it.

    Attributes:
        kind: handler: one raised; client: a program raised; stuck: a program waits for an answer that cannot come; monitor: one failed;
            liveness: a promise was not kept; leak: volatile state had an effect; uncontrolled: a choice was not made by `self.random`.
        place: the machine's class and event, the monitor or the program, which tell faults apart.
        text: what happened.
    """

    def __init__(self, kind: FaultKind, place: str, text: str) -> None:
        super().__init__(text)
        self.kind: Final = kind
        self.place: Final = place
        self.text: Final = text

    @property
    def same(self) -> tuple[str, str]:
        """The facts by which a smaller run has the same fault."""
        return self.kind, self.place
