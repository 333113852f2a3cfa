"""Machines as tools see them: their status and class, and their order in lists."""

from __future__ import annotations

import pytest

from bokirsm.model.events import Message, MessageId
from bokirsm.model.machine_state import MachineState
from bokirsm.model.partition_state import OpenFault
from bokirsm_tools.machines import Machine, by_name

ID = MessageId(7, 0)
CREATION = ((ID, Message("g/3/m", kind="M")),)
EVENT = ((ID, Message("g/3/m", "E")),)
FAULT = OpenFault(9, ID, "", "E", "ValueError: no")


@pytest.mark.parametrize(
    ("machine", "status", "kind"),
    [
        (Machine("g/3/m", MachineState("M", 1), (), None), "ready", "M"),
        (Machine("g/3/m", MachineState("M", 1), EVENT, FAULT), "faulted", "M"),
        (Machine("g/3/m", MachineState("M", 2, halted=True), EVENT, None), "halted", "M"),
        (Machine("g/3/m", None, CREATION, None), "new", "M"),
        (Machine("g/3/m", None, CREATION, FAULT), "faulted", "M"),
        (Machine("g/3/m", None, EVENT, None), "absent", ""),
    ],
)
def test_the_status_and_the_class_of_a_machine(machine: Machine, status: str, kind: str) -> None:
    assert (machine.status, machine.kind) == (status, kind)


def test_lists_are_in_the_order_of_apps_names_and_partitions() -> None:
    assert by_name(["b/1/a", "a/9/b", "a/12/a/x", "a/3/a"]) == ["a/3/a", "a/12/a/x", "a/9/b", "b/1/a"]
