"""The timeline of a machine, from records that are written by hand."""

from __future__ import annotations

from typing import Any

from bokirsm.model.events import (
    DROPPED,
    SAME_RECORD,
    AnyEvent,
    Commit,
    Created,
    Done,
    Emitted,
    Faulted,
    Inputs,
    Message,
    MessageId,
    Output,
    Reply,
    Resumed,
    Skipped,
    TimerSet,
    Undelivered,
)
from bokirsm_tools.timeline import Timeline

M = "g/3/m"


class Line(Timeline):
    """A timeline whose records have seqnums 1, 2, 3 …"""

    def __init__(self) -> None:
        super().__init__(M)
        self.seqnum = 0

    def of(self, *events: AnyEvent) -> list[tuple[str, dict[str, Any]]]:
        self.seqnum += 1
        return [(one.kind, one.facts) for one in self.add(self.seqnum, 1_000 * self.seqnum, events)]

    def kinds(self, *events: AnyEvent) -> list[str]:
        return [kind for kind, _ in self.of(*events)]


def inputs(*events: str, dedup: str = "") -> Inputs:
    return Inputs("g", tuple(Message(M, one, dedup=dedup) for one in events))


def test_a_commit_is_what_its_handler_took_changed_and_did() -> None:
    line = Line()
    assert line.of(Created("g/m", Message(M, "Init", b"\x80", "M"))) == [
        (
            "arrives",
            {"message": "1-0", "event": "Init", "value": b"\x80", "creates": "M", "sender": "", "copy": False},
        )
    ]
    done = line.of(
        Commit(
            *(M, 1, 5, (MessageId(1, 0),), "M", "run", {"a": b"\x01"}, {"t": {b"k": b"v", b"x": None}}),
            creates=(Message("g/4/m#1", kind="N"),),
            sends=(Message("g/4/other", "E", b"e"),),
            timers=(TimerSet("wake", 1, 5, 65, 0, "Ring"), TimerSet("old", 1)),
            replies=(Reply("p/1", "answer", b"r"),),
        )
    )
    assert [kind for kind, _ in done] == [
        *("takes", "enters", "sets", "sets", "sets", "creates", "sends", "timer", "cancels", "replies"),
    ]
    facts = [one for _, one in done]
    assert (facts[0]["event"], facts[1]["state"], facts[2]["field"]) == ("Init", "run", "a")
    assert (facts[3]["key"], facts[4]["removed"]) == (b"k", True)
    assert (facts[5]["class"], facts[6]["machine"], facts[7]["due_ms"]) == ("N", "g/4/other", 65)
    assert line.newest == (2, 2_000)
    assert line.kinds(Commit(M, 2, 6, (), halted=True)) == ["fires", "halts"]
    assert line.of(inputs("E"), Commit(M, DROPPED, took=(MessageId(SAME_RECORD, 0),)))[1] == (
        "drops",
        {"message": "4-0", "event": "E"},
    )


def test_outputs_are_emitted_fail_are_delivered_and_answered() -> None:
    line = Line()
    other = Emitted("g/3/other", 1, (Output("mails", "Mail"),))
    emitted = Emitted(M, 1, (Output("mails", "Mail", b"a"), Output("sms", "Sms")))
    assert line.of(Commit("g/3/other", 1), other, Commit(M, 1, 5, kind="M"), emitted)[1:] == [
        ("emits", {"k": 1, "plugin": "mails", "output": "1-1", "event": "Mail", "value": b"a"}),
        ("emits", {"k": 1, "plugin": "sms", "output": "1-2", "event": "Sms", "value": b""}),
    ]
    failed = {"plugin": "mails", "output": "1-1", "error": "OSError: no", "attempts": 3}
    assert line.of(Undelivered("g/3", "mails", MessageId(1, 1), 3, 9, "OSError: no")) == [("undelivered", failed)]
    assert line.of(Undelivered("g/3", "mails", MessageId(1, 0), 3, 9, "x")) == [], "it is of the other machine"
    done = Done("g/3", "mails", (MessageId(1, 0), MessageId(1, 1)), (Message(M, "Sent"),))
    found = line.of(done)
    assert (found[0][0], found[0][1]["sender"], found[0][1]["event"]) == ("arrives", "mails", "Sent")
    assert found[1] == ("delivers", {"plugin": "mails", "outputs": ["1-1"]})
    assert line.of(Done("g/3", "sms", ())) == []


def test_what_other_machines_do_is_not_in_it() -> None:
    line = Line()
    other = Commit("g/3/other", 1, 5, kind="M", sends=(Message(M, "E"), Message("g/3/third", "E")))
    ((kind, facts),) = line.of(other, Faulted("g/3/other", MessageId(0, 0), "", "E", "x"))
    assert (kind, facts["sender"], facts["message"]) == ("arrives", "g/3/other", "1-0")


def test_the_timer_that_fired_is_the_first_one_of_a_commit_that_took_nothing() -> None:
    line = Line()
    once = Commit(M, 1, 5, timers=(TimerSet("wake", 1), TimerSet("next", 1, 5, 6, 0, "E")))
    assert line.of(once) == [
        ("fires", {"k": 1, "timer": "wake"}),
        ("timer", {"k": 1, "timer": "next", "event": "E", "due_ms": 6, "every_ms": 0}),
    ]
    assert line.kinds(Commit(M, 2, 5, timers=(TimerSet("wake", 2, 5, 9, 4, "E"),))) == ["fires", "timer"]


def test_a_fault_and_the_decisions_about_it() -> None:
    line = Line()
    line.of(inputs("E", "F"))
    fault = Faulted(M, MessageId(1, 0), "", "E", "ValueError: no", "the stack", (Reply("p/1", "faulted", b""),))
    (kind, facts), reply = line.of(fault)
    assert (kind, facts["error"], facts["message"], reply[0]) == ("faults", "ValueError: no", "1-0", "replies")
    assert line.stack == "the stack"
    assert line.of(Resumed(M, 2), Skipped(M, 2)) == [("resume", {"fault": 2}), ("skip", {"fault": 2})]
    timer = line.of(Faulted(M, MessageId(-1, 0), "wake", "E", "x"))[0][1]
    assert (timer["message"], timer["timer"]) == ("", "wake")


def test_a_copy_of_a_message_never_reaches_its_machine() -> None:
    line = Line()
    assert [facts["copy"] for _, facts in line.of(inputs("E", dedup="d"))] == [False]
    assert [facts["copy"] for _, facts in line.of(inputs("E", dedup="d"))] == [True]
    both = line.of(inputs("F", dedup="e"), Commit(M, 1, 5, (MessageId(SAME_RECORD, 0),)))
    assert [(kind, facts.get("copy")) for kind, facts in both] == [("arrives", False), ("takes", None)]


def test_a_message_whose_record_is_not_kept_has_no_event() -> None:
    assert Line().of(Commit(M, 9, 5, (MessageId(1, 0),)))[0][1] == {
        "k": 9,
        "message": "1-0",
        "event": None,
        "value": b"",
        "creates": None,
    }


def test_a_state_defers_what_a_later_event_of_a_program_passed() -> None:
    line = Line()
    line.of(inputs("a", "b"))
    line.of(inputs("c"))
    assert line.passed_below is None
    line.of(Commit(M, 1, 5, (MessageId(1, 1),)))
    assert line.passed_below == MessageId(1, 1)
    line.of(Commit(M, 2, 5, (MessageId(2, 0),)))
    assert line.passed_below == MessageId(2, 0)
    line.of(Commit(M, 3, 5, (), state="other"))
    assert line.passed_below is None, "another state may handle what the one before deferred"
    line.of(inputs("d"))
    line.of(Faulted(M, MessageId(6, 0), "", "d", "x"))
    assert line.passed_below == MessageId(6, 0)
    line.missed()
    assert line.passed_below is None


def test_events_of_machines_and_skipped_ones_show_nothing_about_earlier_ones() -> None:
    line = Line()
    line.of(inputs("a"))
    line.of(Commit("g/3/other", 1, 5, sends=(Message(M, "E"),)), Commit(M, 1, 5, (MessageId(SAME_RECORD, 0),)))
    assert line.passed_below is None, "a host handles events of its own machines before it has read what came before"
    line = Line()
    line.of(inputs("a", "b"))
    line.of(Resumed(M, 1), Faulted(M, MessageId(1, 1), "", "b", "x"))
    line.passed_below = None
    line.of(Skipped(M, 2))
    line.of(Commit(M, 1, 5, (MessageId(1, 1),)))
    assert line.passed_below is None, "an event that is to be skipped comes first"
