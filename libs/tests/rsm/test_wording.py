"""Machines as people and programs read them: values without their classes, bounds, and names that stay on their line."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from bokirsm.machine.values import encode
from bokirsm.model.events import Message, MessageId, Output
from bokirsm.model.machine_state import MachineState
from bokirsm.model.outputs import Failure, WaitingOutput
from bokirsm.model.partition_state import OpenFault
from bokirsm_tools.drawing import waiting
from bokirsm_tools.hosts import Hosts
from bokirsm_tools.machines import Life, Machine
from bokirsm_tools.timeline import Entry, Kind
from bokirsm_tools.wording import (
    JSON_CHARS,
    entry_facts,
    entry_line,
    event_text,
    life_facts,
    life_lines,
    listed_line,
    value_of,
    value_text,
)

EVIL = "a\x1b[31m\nb"


def when(time_ms: int) -> str:
    return f"T{time_ms}"


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (encode({"a": [1, None]}), {"a": [1, None]}),
        (encode({1: "x"}), {1: "x"}),
        (encode(b"\x00"), b"\x00"),
        (encode(datetime(2026, 1, 1, tzinfo=UTC)), datetime(2026, 1, 1, tzinfo=UTC)),
        (b"", None),
        (b"\xc1", "1 bytes that are shown as hexadecimal digits: c1"),
        (msgspec.msgpack.encode(msgspec.msgpack.Ext(7, b"x")), "3 bytes that are shown as hexadecimal digits: d40778"),
    ],
)
def test_values_are_read_without_their_classes(data: bytes, value: Any) -> None:
    assert value_of(data) == value and msgspec.json.encode(value_of(data))


def test_values_have_bounds() -> None:
    long = encode("x" * 2 * JSON_CHARS)
    assert value_of(long).startswith(f"cut, it has {2 * JSON_CHARS + 2} characters: ")
    assert len(value_text(long)) == 100


def test_an_event_is_shown_with_its_fields() -> None:
    assert event_text("Word", encode({"text": "a"})) == 'Word{"text":"a"}'
    assert event_text("Ping", encode({"asker": ""})) == event_text("Ping", b"") == "Ping"
    assert event_text(EVIL, encode({"t": EVIL})) == 'a\\x1b[31m\\nb{"t":"a\\u001b[31m\\nb"}'


def life(**changes: Any) -> Life:
    state = MachineState("M", 7, 5, "run", registers={"a": encode(EVIL)}, tables={"t": {}})
    state.tables["t"].update({encode(number): encode(number) for number in range(5)})
    waits = tuple((MessageId(number, 0), Message("g/3/m", "E")) for number in range(1, 15))
    machine = Machine("g/3/m", state, waits, None)
    found = Life(machine, frozenset([MessageId(1, 0)]), (90, 91), 0, "", 100)
    return found._replace(**changes)


def test_what_is_many_is_counted() -> None:
    lines = life_lines(life(), Hosts({}, 0), when, keys=2)
    assert "commits   7, the newest in record 90 at T91" in lines
    assert "partition 3, no host of this app was seen" in lines
    assert "field     t has 3 more keys" in lines and "inbox     3 more" in lines and "deferred  1 wait" in lines
    facts = life_facts(life(), Hosts({}, 0), keys=2)
    assert facts["fields"]["tables"]["t"] == {"keys": 5, "first": [[0, 0], [1, 1]]}
    assert (facts["inbox"]["length"], len(facts["inbox"]["head"]), facts["deferred"]["length"]) == (13, 10, 1)
    assert facts["inbox"]["head"][0] == {"message": "2-0", "event": "E", "value": None, "creates": None}


def test_what_is_not_kept_is_said() -> None:
    fault = OpenFault(9, MessageId(2, 0), "", "E", f"ValueError: {EVIL}", skip=True)
    one = life(newest=None, machine=life().machine._replace(fault=fault))
    lines = life_lines(one, Hosts({}, 0), when)
    assert "commits   7, the newest at about T5; its record is not kept" in lines
    assert lines[-2:] == ["fault     E: ValueError: a\\x1b[31m; to be skipped", "stack: not kept any more"]
    facts = life_facts(one, Hosts({}, 0))
    assert facts["newest_commit"] is None and facts["fault"]["time_ms"] is None and facts["fault"]["skip"]
    assert "stack, innermost call last:" in life_lines(one._replace(stack="Traceback"), Hosts({}, 0), when)


def test_a_machine_that_does_not_exist_says_so() -> None:
    machine = Machine("g/3/m", None, life().machine.waits[:1], None)
    assert listed_line(machine, "") == "absent   g/3/m  no such machine  1 wait"
    lines = life_lines(life(machine=machine, passed=frozenset()), Hosts({}, 0), when)
    assert "class     no such machine: what was sent to it is dropped" in lines


def test_outputs_that_wait_are_shown_with_their_error() -> None:
    outputs = tuple(
        (MessageId(9, number), WaitingOutput("g/3/m", Output("mails", "Mail", encode({"to": "x"})), 70))
        for number in range(12)
    )
    sms = (MessageId(9, 12), WaitingOutput("g/3/m", Output("sms", "Sms"), 0))
    failure = Failure(MessageId(9, 0), 6, 99, f"OSError: {EVIL}")
    machine = Machine("g/3/m", life().machine.state, (), None, (*outputs, sms), {"mails": failure})
    assert listed_line(machine, "") == "ready    g/3/m  M  run  13 outputs wait; mails: OSError: a\\x1b[31m"
    assert listed_line(machine._replace(outputs=(sms,), failures={}), "").endswith("  1 output waits")
    lines = life_lines(life(machine=machine), Hosts({}, 0), when)
    found = [line for line in lines if line.startswith("outputs")]
    assert found[0] == "outputs   12 for mails, the first since T70" and found[1] == 'outputs   9-0  Mail{"to":"x"}'
    assert found[11:13] == [
        "outputs   2 more for mails",
        "outputs   mails failed 6 times to deliver 9-0, at T99: OSError: a\\x1b[31m",
    ]
    assert found[13:] == ["outputs   1 for sms, the first since T0", "outputs   9-12  Sms"]
    facts = life_facts(life(machine=machine), Hosts({}, 0))
    assert (facts["outputs"][0]["length"], len(facts["outputs"][0]["head"]), facts["outputs"][0]["since_ms"]) == (
        12,
        10,
        70,
    )
    assert facts["outputs"][0]["failure"]["attempts"] == 6 and facts["outputs"][1]["failure"] is None
    assert (facts["outputs"][1]["since_ms"], facts["plugin_error"]) == (None, failure.error)
    shown = "".join(waiting(life(machine=machine)).itertext())
    assert (
        "for mails since" in shown
        and ": OSError: a\\x1b[31m" in shown
        and "and 3 more" in shown
        and "13 outputs wait" in shown
    )


def test_a_line_of_a_list_fits_the_terminal() -> None:
    line = listed_line(life().machine, "no living host: " + "x" * 200, 80)
    assert len(line) == 80 and line.endswith("…")
    assert listed_line(life().machine, "alone").endswith("14 wait  alone")
    halted = Machine("g/3/m", MachineState("M", 1, halted=True), (), None)
    assert "alone" not in listed_line(halted, "alone"), "it needs no host"


@pytest.mark.parametrize(
    ("kind", "facts", "text"),
    [
        ("arrives", {"message": "1-0", "event": "", "value": b"", "creates": "M", "sender": ""}, "1-0 creates M"),
        ("arrives", {"message": "1-0", "event": "E", "sender": "g/3/n", "copy": True}, "1-0 E from g/3/n, a copy"),
        ("takes", {"k": 2, "message": "1-0", "event": None}, "1-0, whose record is not kept"),
        ("emits", {"k": 2, "output": "1-0", "event": "E", "value": b"", "plugin": "p"}, "1-0 E to p"),
        ("delivers", {"outputs": ["1-0", "1-1"], "plugin": "p"}, "1-0, 1-1 by p"),
        ("undelivered", {"output": "1-0", "plugin": "p", "attempts": 3, "error": "x\ny"}, "1-0 by p, 3 attempts: x"),
        ("fires", {"k": 2, "timer": None}, "a timer of a machine that halted then"),
        ("enters", {"k": 2, "state": "run", "before": "wait"}, "run from wait"),
        ("sets", {"k": 2, "field": "a", "key": None, "value": b"\x07", "removed": False}, "a = 7"),
        ("sets", {"k": 2, "field": "a", "key": b"\x01", "value": b"", "removed": True}, "a[1] removed"),
        ("creates", {"k": 2, "machine": "g/3/n", "class": "N", "event": "", "value": b""}, "g/3/n of class N"),
        ("sends", {"k": 2, "machine": "g/3/n", "event": EVIL, "value": b""}, "a\\x1b[31m\\nb to g/3/n"),
        ("timer", {"k": 2, "timer": "w", "event": "E", "due_ms": 9, "every_ms": 60_000}, "w: E, due T9, every 60.0 s"),
        ("cancels", {"k": 2, "timer": "w"}, "w"),
        ("replies", {"k": 2, "outcome": "answer", "asker": "p/1", "value": b"\x07"}, "answer 7"),
        ("faults", {"timer": "w", "event": "E", "error": "X: y\nz"}, "timer w: X: y"),
        ("skip", {"fault": 7}, "the fault of record 7"),
        ("missing", {"first": 1, "last": 8, "lost": False}, "records 1 to 8 are trimmed"),
        ("unreadable", {"error": "a\nb"}, "a\\nb"),
        ("halts", {"k": 2}, ""),
    ],
)
def test_an_entry_of_a_timeline_is_a_line(kind: Kind, facts: dict[str, Any], text: str) -> None:
    line = entry_line(Entry(8, 9, kind, facts), when)
    assert line.startswith("8  T9  ") and ("#2" in line) is ("k" in facts) and "\n" not in line and "\x1b" not in line
    assert text in line
    assert msgspec.json.encode(entry_facts(Entry(8, 0, kind, facts)))
