"""The state of a machine from its commits, each applied once."""

from __future__ import annotations

import pytest

from bokirsm.model.events import Commit, Message, TimerSet
from bokirsm.model.machine_state import MachineState, decode_state, encode_state

COMMITS = [
    Commit("g/1/m", 1, 10, kind="M", life=7, state="run", registers={"a": b"1"}, keys={"t": {b"k": b"1", b"l": b"2"}}),
    Commit("g/1/m", 2, 20, keys={"t": {b"k": None}}, timers=(TimerSet("x", 2, 20, 30, 0, "Go"),)),
    Commit("g/1/m", 3, 30, registers={"a": b"2"}, creates=(Message("g/2/m#1", kind="M"),), timers=(TimerSet("x", 3),)),
]


def test_commits_are_applied_by_number() -> None:
    whole = MachineState("M")
    whole.catch_up(COMMITS)
    assert (whole.k, whole.at_ms, whole.state, whole.children, whole.life) == (3, 30, "run", 1, 7)
    assert (whole.registers, whole.tables, whole.timers) == ({"a": b"2"}, {"t": {b"l": b"2"}}, {})
    for count in range(4):
        part = MachineState("M")
        part.catch_up(COMMITS[:count])
        restored = decode_state(encode_state(part))
        restored.catch_up(COMMITS)
        assert restored == whole, "a commit that a snapshot has is not applied again"
    with pytest.raises(AssertionError, match="commit 2 after 3"):
        whole.apply(COMMITS[1])


def test_a_copy_changes_apart_and_a_halted_machine_is_empty() -> None:
    one = MachineState("M")
    one.catch_up(COMMITS)
    other = one.copy()
    other.apply(Commit("g/1/m", 4, 40, halted=True))
    assert other.halted and not other.registers and not other.tables and one.registers == {"a": b"2"}


def test_a_snapshot_without_the_newer_fields_is_read() -> None:
    """The fields that are missing at the end of a header have their defaults."""
    data = "dd0000000294a168a0c400c40b96a14d010aa372756ec20094a172a161c400c40131"
    expected = MachineState("M", 1, 10, "run", registers={"a": b"1"})
    assert decode_state(bytes.fromhex(data)) == expected
