"""Machines as tools see them: one as of a position, and all that the log has of one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from bokirsm.machine.refs import Ref
from bokirsm.model.events import Message, MessageId
from bokirsm.model.machine_state import MachineState
from bokirsm.model.outputs import Failure, WaitingOutput
from bokirsm.model.partition_state import OpenFault

Status: TypeAlias = Literal["ready", "new", "faulted", "halted", "absent"]
STATUSES: Final[tuple[Status, ...]] = ("ready", "new", "faulted", "halted", "absent")


class Machine(NamedTuple):
    """A machine as the log has it.

    Attributes:
        ref: the machine as text.
        state: its state; None before its first commit.
        waits: its messages that no commit took, in the order of the log.
        fault: its open fault, or None.
        outputs: its outputs that no plugin has delivered, by plugin and in order.
        failures: the plugins that fail to deliver them, by stored name.
    """

    ref: str
    state: MachineState | None
    waits: tuple[tuple[MessageId, Message], ...]
    fault: OpenFault | None
    outputs: tuple[tuple[MessageId, WaitingOutput], ...] = ()
    failures: Mapping[str, Failure] = {}

    @property
    def kind(self) -> str:
        """The stored name of its class; "" if it does not exist."""
        if self.state is not None:
            return self.state.kind
        return next((message.kind for _, message in self.waits if message.kind), "")

    @property
    def status(self) -> Status:
        """The status: `new` until a host handles its creation, `absent` if events were sent to it and it was never created."""
        if self.fault is not None:
            return "faulted"
        if self.state is None:
            return "new" if self.kind else "absent"
        return "halted" if self.state.halted else "ready"


class Life(NamedTuple):
    """All that the log has of a machine, but for its timeline.

    Attributes:
        machine: it.
        passed: the messages that its present state defers, as far as the log shows it (`Timeline`).
        newest: the seqnum and the time of the record of its newest commit; None if that record is not kept.
        fault_ms: the time of its fault; 0 if the record is not kept.
        stack: the stack of its fault; "" if the record is not kept.
        position: the seqnum as of which it was read.
    """

    machine: Machine
    passed: frozenset[MessageId]
    newest: tuple[int, int] | None
    fault_ms: int
    stack: str
    position: int


def by_name(refs: Iterable[str]) -> list[str]:
    """Return machines in the order of lists: by name, then partition."""
    return sorted(refs, key=order)


def order(ref: str) -> tuple[str, str, int]:
    """Return the place of a machine in lists."""
    parsed = Ref.parse(ref)
    return parsed.group, parsed.name, parsed.partition
