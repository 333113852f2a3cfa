"""The machines in the memory of a lane, by their bytes, and which of them may be dropped. Pure.

- A machine is *clean* if it waits for nothing, and its newest snapshot has all that its memory has: it is read again with its next input.
- A machine that changed is in memory until the checkpoint of its partition, which writes its snapshot.
- Of the clean ones, those are dropped first that have been clean for longest. So memory stays near its bound, unless machines that wait,
  or changed since their last snapshot, are larger.
"""

from __future__ import annotations

from typing import Final

from bokirsm.lane.inboxes import LaneMachine
from bokirsm.model.events import Commit
from bokirsm.model.partition_state import weight_of

MACHINE_BYTES: Final = 1_792
"""Bytes of a machine in memory without its values, about."""
CHANGED_SHARE: Final = 2
"""The bound is so many times what may be changed before checkpoints are made because of it."""


class Residents:
    """The machines in memory; see the module.

    Invariant: `size` and `changed` are the sums over these machines of `LaneMachine.size`, and of that of the changed ones.

    Attributes:
        size: bytes of all machines.
        changed: bytes of those that changed since their newest snapshot.
    """

    def __init__(self, limit: int) -> None:
        """Begin with no machine. `limit`: bytes of machines beyond which clean ones are dropped."""
        self.size = 0
        self.changed = 0
        self._limit: Final = limit
        self._clean: Final[dict[str, None]] = {}
        """Machines that were clean when they were noted, in the order in which they became so."""

    @property
    def is_full(self) -> bool:
        """True if clean machines should be dropped."""
        return self.size > self._limit

    @property
    def wants_snapshots(self) -> bool:
        """True if memory is full of machines that changed, so that a checkpoint has to make them clean."""
        return self.is_full and self.changed * CHANGED_SHARE > self._limit

    def add(self, machine: LaneMachine) -> None:
        """Count a machine that is new in memory."""
        self._resize(machine, MACHINE_BYTES)

    def loaded(self, machine: LaneMachine, size: int) -> None:
        """Count the state of a machine that was read, of so many bytes."""
        self._resize(machine, MACHINE_BYTES + size)
        self._note(machine)

    def committed(self, machine: LaneMachine, commit: Commit) -> None:
        """Count what a commit added to a machine. Keys that it replaced or removed count until the next snapshot."""
        self._resize(machine, machine.size + weight_of(commit))
        self._note(machine)

    def written(self, machine: LaneMachine, size: int) -> None:
        """Count a machine whose snapshot, of so many bytes, is in the log."""
        self._resize(machine, MACHINE_BYTES + size)
        self._note(machine)
        self.rest(machine)

    def rest(self, machine: LaneMachine) -> None:
        """Note that a machine may have nothing to do."""
        if machine.is_clean:
            self._clean.pop(machine.text, None)
            self._clean[machine.text] = None

    def remove(self, machine: LaneMachine) -> None:
        """Count a machine no longer: it is dropped."""
        self._resize(machine, 0)
        machine.is_counted_changed = False
        self._clean.pop(machine.text, None)

    def pop(self) -> str | None:
        """Return the machine that has been clean for longest, if it still is, and forget that it was; None without one."""
        text = next(iter(self._clean), None)
        if text is not None:
            del self._clean[text]
        return text

    def _resize(self, machine: LaneMachine, size: int) -> None:
        self.size += size - machine.size
        if machine.is_counted_changed:
            self.changed += size - machine.size
        machine.size = size

    def _note(self, machine: LaneMachine) -> None:
        if machine.is_changed != machine.is_counted_changed:
            self.changed += machine.size if machine.is_changed else -machine.size
            machine.is_counted_changed = machine.is_changed
