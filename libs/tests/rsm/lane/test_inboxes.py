"""The inbox of a machine: deferred items, timers that are set no more, the item of a fault."""

from __future__ import annotations

from bokirsm.lane.inboxes import Firing, Item, LaneMachine
from bokirsm.machine.declaration import Reaction
from bokirsm.model.events import Message, MessageId, TimerSet
from bokirsm.model.lane_record import TIMER, InboxMessage
from bokirsm.model.machine_state import MachineState
from bokirsm.model.partition_state import OpenFault, TimerTimes
from libs.tests.rsm.words import Counter

DECLARATION = Counter.declaration


def inbox_of(*events: str) -> LaneMachine:
    machine = LaneMachine("words/3/c")
    machine.state = MachineState("Counter", 1, state="waiting")
    machine.inbox.extend(InboxMessage(Message(machine.text, event), 10 + at, 0) for at, event in enumerate(events))
    return machine


def names(items: list[Item]) -> list[str]:
    return [item.message.event if isinstance(item, InboxMessage) else item.name for item in items]


def test_deferred_items_come_first_once_the_state_is_another() -> None:
    machine = inbox_of("Word", "Word", "Init", "Word")
    found = machine.next_work(DECLARATION)
    assert found is not None and (found.work.event, found.reaction) == ("Init", Reaction.HANDLE)
    assert names(machine.deferred) == ["Word", "Word"] and len(machine.messages()) == 4
    machine.took(changed_state=True)
    assert [item.seqnum for item in machine.messages()] == [10, 11, 13] and not machine.deferred
    assert machine.next_work(DECLARATION) is None, "it waits in the same state: all are deferred"


def test_only_the_timer_that_is_set_fires() -> None:
    machine = inbox_of()
    assert machine.state is not None
    machine.state.timers["t"] = TimerSet("t", 4, 100, 200, event="Init")
    is_set = Firing("t", TimerTimes(100, 200, 4))
    others = [TimerTimes(100, 200, 3), TimerTimes(90, 200, 4), TimerTimes(100, 150, 4)]
    machine.inbox.extend([Firing("gone", is_set.times), *(Firing("t", one) for one in others), is_set])
    found = machine.next_work(DECLARATION)
    assert found is not None and found.item is is_set and found.work.timer == "t"


def test_the_item_of_a_fault_comes_first() -> None:
    machine = inbox_of("Word", "Init")
    machine.next_work(DECLARATION)
    assert machine.bring_forward(OpenFault(5, MessageId(10, 0), "", "Word", "error"))
    assert names(list(machine.inbox)) == ["Word", "Init"] and not machine.deferred
    assert not machine.bring_forward(OpenFault(5, MessageId(TIMER, 0), "t", "Word", "error"))
    assert machine.state is not None
    machine.state.timers["t"] = TimerSet("t", 1, 100, 200, event="Init")
    machine.inbox.extend([Firing("t", TimerTimes(90, 190, 1)), Firing("t", TimerTimes(100, 200, 1))])
    assert machine.bring_forward(OpenFault(5, MessageId(TIMER, 0), "t", "Word", "error"))
    assert names(list(machine.inbox)) == ["t", "Word", "Init", "t"]
    found = machine.next_work(None)
    assert found is not None and found.work.timer == "t", "the one that is set"
