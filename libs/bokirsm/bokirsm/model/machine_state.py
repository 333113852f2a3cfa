"""The persistent state of one machine, as values in bytes, and how a commit changes it. Pure.

The state of a machine is its newest snapshot and the commits above it, by number: a commit that a snapshot contains is not applied again.
Values are encoded by the class of the machine (`bokirsm.machine.values`); this module knows no types.
"""

from __future__ import annotations

from typing import Final

import msgspec

from bokirsm.model import parts
from bokirsm.model.events import Commit, TimerSet
from bokirsm.model.parts import Row


class MachineState(msgspec.Struct, array_like=True):
    """The state of a machine after its commit number `k`.

    Invariant: commits are applied in order, each once: `k` rises by one with each.

    Attributes:
        kind: the stored name of the machine's class.
        k: the number of the newest commit; 0 before the first.
        at_ms: the machine's time at that commit.
        state: the stored name of its state; "" before the first commit.
        halted: it takes no more events.
        children: machines that it created so far, which numbers their names.
        registers: encoded values by name.
        tables: encoded values by encoded key, by name of the table.
        timers: open timers by name.
        life: of a machine with a key: the seqnum of its creation, which tells it from a later machine with its key; else 0.
    """

    kind: str
    k: int = 0
    at_ms: int = 0
    state: str = ""
    halted: bool = False
    children: int = 0
    registers: dict[str, bytes] = {}
    tables: dict[str, dict[bytes, bytes]] = {}
    timers: dict[str, TimerSet] = {}
    life: int = 0

    def apply(self, commit: Commit) -> None:
        """Apply the next commit."""
        assert commit.k == self.k + 1, f"commit {commit.k} after {self.k}: each is applied once and in order"
        self.k, self.at_ms, self.life = commit.k, commit.at_ms, commit.life or self.life
        self.state = self.state if commit.state is None else commit.state
        self.children += len(commit.creates)
        self.registers.update(commit.registers)
        for name, changes in commit.keys.items():
            table = self.tables.setdefault(name, {})
            for key, value in changes.items():
                if value is None:
                    table.pop(key, None)
                else:
                    table[key] = value
        for timer in commit.timers:
            if timer.is_removal:
                self.timers.pop(timer.name, None)
            else:
                self.timers[timer.name] = timer
        if commit.halted:
            self.halted = True
            self.registers, self.tables, self.timers = {}, {}, {}

    def catch_up(self, commits: list[Commit]) -> None:
        """Apply the commits of a list that this state does not contain."""
        for commit in commits:
            if commit.k > self.k:
                self.apply(commit)

    def copy(self) -> MachineState:
        """Return a state that changes apart from this one."""
        return decode_state(encode_state(self))


class _Header(msgspec.Struct, array_like=True, frozen=True):
    """The first row of a snapshot."""

    kind: str
    k: int
    at_ms: int
    state: str
    halted: bool
    children: int
    life: int = 0


_HEADER: Final = "h"
_REGISTER: Final = "r"
_KEY: Final = "k"
_TIMER: Final = "t"
_encoder: Final = msgspec.msgpack.Encoder()
_header: Final = msgspec.msgpack.Decoder(_Header)
_timer: Final = msgspec.msgpack.Decoder(TimerSet)


def rows_of_state(state: MachineState) -> tuple[Row, list[Row]]:
    """Return the header and the other rows of a snapshot. Registers, keys and timers keep their order."""
    head = _Header(state.kind, state.k, state.at_ms, state.state, state.halted, state.children, state.life)
    rows = [Row(_REGISTER, name, b"", value) for name, value in state.registers.items()]
    rows += [Row(_KEY, name, key, value) for name, table in state.tables.items() for key, value in table.items()]
    rows += [Row(_TIMER, name, b"", _encoder.encode(timer)) for name, timer in state.timers.items()]
    return Row(_HEADER, value=_encoder.encode(head)), rows


def encode_state(state: MachineState) -> bytes:
    """Return the bytes of a state, as a snapshot without parts has them."""
    header, rows = rows_of_state(state)
    return parts.whole(parts.compose(header, rows, parts.KeptParts(), 0, 1))


def decode_state(data: bytes) -> MachineState:
    """Return the state that a snapshot has. `data`: of its head, followed by that of its parts."""
    header, *rows = parts.rows_of(data)
    found = _header.decode(header.value)
    state = MachineState(
        found.kind, found.k, found.at_ms, found.state, found.halted, found.children, {}, {}, {}, found.life
    )
    for row in rows:
        if row.kind == _REGISTER:
            state.registers[row.name] = row.value
        elif row.kind == _KEY:
            state.tables.setdefault(row.name, {})[row.key] = row.value
        else:
            state.timers[row.name] = _timer.decode(row.value)
    return state
