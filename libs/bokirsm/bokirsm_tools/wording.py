"""Machines as people read them on a terminal, and as JSON. Pure.

Names, values and errors come from users of the book: unprintable characters are shown as escapes, so that they never move a cursor or end a
line. Values are decoded without the classes that declare them, and shown within bounds: `VALUE_CHARS` on a line, `JSON_CHARS` in JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from boki_gateway.pages.texts import preview, printable, span_text
from bokilib.stacks import without_our_frames
from bokirsm.machine.refs import Ref
from bokirsm.model.events import Message, MessageId
from bokirsm.model.partition_state import OpenFault
from bokirsm_tools.hosts import Hosts, host_text
from bokirsm_tools.machines import Life, Machine
from bokirsm_tools.timeline import Entry

VALUE_CHARS: Final = 100
JSON_CHARS: Final = 10_000
KEYS: Final = 20
"""Keys of a table that are shown."""
HEAD: Final = 10
"""Messages of an inbox that are shown."""


# -- values


def value_of(data: bytes) -> Any:
    """Return an encoded value as JSON can have it. One that is too long becomes a text with its beginning."""
    if not data:
        return None
    try:
        value = msgspec.msgpack.decode(data)
        text = msgspec.json.encode(value).decode()
    except (msgspec.DecodeError, msgspec.EncodeError, TypeError, ValueError):
        return f"{len(data)} bytes that are shown as hexadecimal digits: {data[:VALUE_CHARS].hex()}"
    if len(text) <= JSON_CHARS:
        return value
    return f"cut, it has {len(text)} characters: {text[:JSON_CHARS]}"


def value_text(data: bytes) -> str:
    """Return an encoded value as JSON on one line, cut where it becomes long."""
    return preview(value_of(data), VALUE_CHARS)


def event_text(event: str, data: bytes) -> str:
    """Return an event with its fields: Word{"text":"a"}."""
    fields = value_of(data) if data else {}
    if isinstance(fields, dict) and fields.get("asker") == "":
        del fields["asker"]  # a question that was sent like any event
    return f"{printable(event)}{preview(fields, VALUE_CHARS)}" if fields else printable(event)


# -- lists


def listed_facts(one: Machine, hosts: Hosts) -> dict[str, Any]:
    """Return a machine of a list as members for JSON."""
    ref = Ref.parse(one.ref)
    fault = one.fault
    return {
        "id": one.ref,
        "app": ref.group,
        "partition": ref.partition,
        "name": ref.name,
        "class": one.kind,
        "status": one.status,
        "state": one.state.state if one.state is not None else "",
        "commits": one.state.k if one.state is not None else 0,
        "changed_ms": one.state.at_ms if one.state is not None and one.state.k else None,
        "waiting": len(one.waits),
        "outputs": len(one.outputs),
        "plugin_error": next((failure.error for failure in one.failures.values()), None),
        "error": None if fault is None else fault.error,
        "owner": hosts.facts(ref.partition),
    }


def listed_line(one: Machine, alone: str, room: int = 0) -> str:
    """Return a machine of a list on one line.

    Args:
        one: the machine.
        alone: the clause that no living host owns it, or "".
        room: characters of the line; 0 for any number.
    """
    parts = [one.status.ljust(7), printable(one.ref), printable(one.kind) or "no such machine"]
    if one.state is not None and one.state.state:
        parts.append(printable(one.state.state))
    if one.waits:
        parts.append(f"{len(one.waits):,} wait")
    if one.outputs:
        parts.append(outputs_text(one))
    if one.fault is not None:
        parts.append(fault_text(one.fault))
    if alone and one.status != "halted":
        parts.append(alone)
    line = "  ".join(parts)
    return line if not room or len(line) <= room else f"{line[: max(room, 60) - 1]}…"


def outputs_text(one: Machine) -> str:
    """Return the outputs of a machine that wait on one line: their number, and the newest error of a plugin."""
    count = len(one.outputs)
    text = f"{count:,} output{'s'[: count != 1]} wait{'s'[: count == 1]}"
    for plugin, failure in one.failures.items():
        text += f"; {printable(plugin)}: {printable(failure.error.partition(chr(10))[0])}"
    return text


def fault_text(fault: OpenFault) -> str:
    """Return a fault on one line: the event or timer, the error, and whether its event is to be dropped."""
    where = f"timer {printable(fault.timer)}" if fault.timer else printable(fault.event) or "its creation"
    error = printable(fault.error.partition("\n")[0])
    return f"{where}: {error}{'; to be skipped' if fault.skip else ''}"


# -- one machine


def message_facts(id: MessageId, message: Message) -> dict[str, Any]:
    """Return a message that waits as members for JSON."""
    return {
        "message": str(id),
        "event": message.event,
        "value": value_of(message.body),
        "creates": message.kind or None,
    }


def _fields_facts(one: Machine, keys: int) -> dict[str, Any]:
    state = one.state
    if state is None:
        return {"registers": {}, "tables": {}}
    tables = {
        name: {
            "keys": len(table),
            "first": [[value_of(key), value_of(value)] for key, value in islice(table.items(), keys)],
        }
        for name, table in state.tables.items()
    }
    return {"registers": {name: value_of(value) for name, value in state.registers.items()}, "tables": tables}


def _plugins_of(one: Machine) -> list[str]:
    """Return the plugins for which outputs of a machine wait."""
    return list(dict.fromkeys(waits.output.plugin for _, waits in one.outputs))


def _plugin_facts(one: Machine, plugin: str) -> dict[str, Any]:
    """Return the outputs of a machine that wait for a plugin as members for JSON."""
    several = [(id, waits) for id, waits in one.outputs if waits.output.plugin == plugin]
    failure = one.failures.get(plugin)
    return {
        "plugin": plugin,
        "length": len(several),
        "since_ms": several[0][1].time_ms or None,
        "head": [
            {"output": str(id), "event": waits.output.event, "value": value_of(waits.output.body)}
            for id, waits in several[:HEAD]
        ],
        "failure": None
        if failure is None
        else {
            "output": str(failure.output),
            "attempts": failure.attempts,
            "time_ms": failure.at_ms,
            "error": failure.error,
        },
    }


def life_facts(life: Life, hosts: Hosts, keys: int = KEYS) -> dict[str, Any]:
    """Return what is known of a machine as members for JSON. `keys`: of a table, at most."""
    one = life.machine
    deferred = [(id, message) for id, message in one.waits if id in life.passed]
    inbox = [(id, message) for id, message in one.waits if id not in life.passed]
    newest = life.newest
    fault = one.fault
    return {
        **listed_facts(one, hosts),
        "newest_commit": None if newest is None else {"seqnum": newest[0], "time_ms": newest[1]},
        "fields": _fields_facts(one, keys),
        "inbox": {"length": len(inbox), "head": [message_facts(*pair) for pair in inbox[:HEAD]]},
        "deferred": {"length": len(deferred), "head": [message_facts(*pair) for pair in deferred[:HEAD]]},
        "outputs": [_plugin_facts(one, plugin) for plugin in _plugins_of(one)],
        "timers": [
            {
                "timer": timer.name,
                "event": timer.event,
                "value": value_of(timer.body),
                "set_ms": timer.set_ms,
                "due_ms": timer.due_ms,
                "every_ms": timer.every_ms,
            }
            for timer in ([] if one.state is None else one.state.timers.values())
        ],
        "fault": None
        if fault is None
        else {
            "seqnum": fault.seqnum,
            "time_ms": life.fault_ms or None,
            "event": fault.event,
            "timer": fault.timer or None,
            "message": None if fault.timer else str(fault.message),
            "error": fault.error,
            "stack": life.stack,
            "skip": fault.skip,
        },
        "position": life.position,
    }


def life_lines(life: Life, hosts: Hosts, time_text: Callable[[int], str], keys: int = KEYS) -> list[str]:
    """Return what is known of a machine for people: a name and a value on each line, and the stack of its fault.

    Args:
        life: the machine.
        hosts: those of its app.
        time_text: formats a time in milliseconds since 1970 UTC.
        keys: of a table, at most.
    """
    one, ref = life.machine, Ref.parse(life.machine.ref)
    rows: list[tuple[str, str]] = [("status", one.status), ("app", printable(ref.group))]
    rows.append(("class", printable(one.kind) or "no such machine: what was sent to it is dropped"))
    if one.state is not None:
        rows.append(("state", printable(one.state.state) or "none yet"))
        rows.append(("commits", _commits_text(life, time_text)))
    rows.append(("partition", f"{ref.partition}, {_owner_text(hosts, ref.partition, time_text)}"))
    rows += _field_rows(one, keys)
    rows += _waiting_rows(life)
    rows += _output_rows(one, time_text)
    if one.state is not None:
        for timer in one.state.timers.values():
            every = f", every {span_text(timer.every_ms)}" if timer.every_ms else ""
            event = "" if timer.name == timer.event else f": {event_text(timer.event, timer.body)}"
            rows.append(("timer", f"{printable(timer.name)}{event}, due {time_text(timer.due_ms)}{every}"))
    stack: list[str] = []
    if one.fault is not None:
        since = f" since {time_text(life.fault_ms)}" if life.fault_ms else ""
        rows.append(("fault", f"{fault_text(one.fault)}{since}"))
        stack = stack_lines(life.stack) or ["stack: not kept any more"]
    return [*(f"{name.ljust(10)}{value}" for name, value in rows), *stack]


def _commits_text(life: Life, time_text: Callable[[int], str]) -> str:
    state = life.machine.state
    assert state is not None
    if life.newest is None:
        return f"{state.k:,}, the newest at about {time_text(state.at_ms)}; its record is not kept"
    return f"{state.k:,}, the newest in record {life.newest[0]} at {time_text(life.newest[1])}"


def _owner_text(hosts: Hosts, partition: int, time_text: Callable[[int], str]) -> str:
    owner = hosts.owners.get(partition)
    held = "" if owner is None or not owner.host else f"{host_text(owner.host)} since {time_text(owner.since_ms)}"
    return "; ".join(part for part in (held, hosts.text(partition)) if part)


def _field_rows(one: Machine, keys: int) -> list[tuple[str, str]]:
    if one.state is None:
        return []
    rows = [("field", f"{printable(name)} = {value_text(value)}") for name, value in one.state.registers.items()]
    for name, table in one.state.tables.items():
        rows += [
            ("field", f"{printable(name)}[{value_text(key)}] = {value_text(value)}")
            for key, value in islice(table.items(), keys)
        ]
        if len(table) > keys:
            rows.append(("field", f"{printable(name)} has {len(table) - keys:,} more keys"))
    return rows


def _waiting_rows(life: Life) -> list[tuple[str, str]]:
    waits = life.machine.waits
    rows = []
    for name, is_deferred in (("inbox", False), ("deferred", True)):
        found = [(id, one) for id, one in waits if (id in life.passed) is is_deferred]
        if not found and is_deferred:
            continue
        rows.append((name, f"{len(found):,} wait" if found else "empty"))
        rows += [(name, f"{id}  {message_text(one)}") for id, one in found[:HEAD]]
        if len(found) > HEAD:
            rows.append((name, f"{len(found) - HEAD:,} more"))
    return rows


def _output_rows(one: Machine, time_text: Callable[[int], str]) -> list[tuple[str, str]]:
    rows = []
    for plugin in _plugins_of(one):
        several = [(id, waits) for id, waits in one.outputs if waits.output.plugin == plugin]
        name = printable(plugin)
        rows.append(("outputs", f"{len(several):,} for {name}, the first since {time_text(several[0][1].time_ms)}"))
        rows += [
            ("outputs", f"{id}  {event_text(waits.output.event, waits.output.body)}") for id, waits in several[:HEAD]
        ]
        if len(several) > HEAD:
            rows.append(("outputs", f"{len(several) - HEAD:,} more for {name}"))
        failure = one.failures.get(plugin)
        if failure is not None:
            error = printable(failure.error.partition("\n")[0])
            text = f"{name} failed {failure.attempts:,} times to deliver {failure.output}, at {time_text(failure.at_ms)}: {error}"
            rows.append(("outputs", text))
    return rows


def message_text(message: Message) -> str:
    """Return a message on one line."""
    created = f"creates {printable(message.kind)} " if message.kind else ""
    return f"{created}{event_text(message.event, message.body)}".strip()


def stack_lines(stack: str) -> list[str]:
    """Return a stack trace without the frames of Boki's own code as printable lines below a heading; no lines if it is empty."""
    if not stack:
        return []
    lines = without_our_frames(stack).rstrip("\n").split("\n")
    return ["stack, innermost call last:", *map(printable, lines)]


# -- a timeline


def entry_facts(one: Entry) -> dict[str, Any]:
    """Return an entry of a timeline as members for JSON."""
    facts: dict[str, Any] = {"seqnum": one.seqnum, "time_ms": one.time_ms or None, "kind": one.kind}
    return facts | {name: value_of(value) if isinstance(value, bytes) else value for name, value in one.facts.items()}


def entry_line(one: Entry, time_text: Callable[[int], str]) -> str:
    """Return an entry of a timeline on one line: the record, its time, the number of the commit, the kind, and what happened."""
    k = one.facts.get("k")
    when = time_text(one.time_ms) if one.time_ms else ""
    parts = [str(one.seqnum), when, f"#{k}" if k else "", one.kind.ljust(8), entry_text(one, time_text)]
    return "  ".join(part for part in parts if part).rstrip()


def entry_text(one: Entry, time_text: Callable[[int], str]) -> str:
    """Return what happened in an entry of a timeline, without its kind."""
    facts = one.facts
    match one.kind:
        case "arrives" | "takes" | "drops":
            return _arrival_text(facts)
        case "fires":
            return printable(facts["timer"] or "a timer of a machine that halted then")
        case "enters":
            return f"{printable(facts['state'])}{_from(facts['before'])}"
        case "sets":
            key = "" if facts["key"] is None else f"[{value_text(facts['key'])}]"
            value = " removed" if facts["removed"] else f" = {value_text(facts['value'])}"
            return f"{printable(facts['field'])}{key}{value}"
        case "creates":
            event = f" with {event_text(facts['event'], facts['value'])}" if facts["event"] else ""
            return f"{printable(facts['machine'])} of class {printable(facts['class'])}{event}"
        case "sends":
            return f"{event_text(facts['event'], facts['value'])} to {printable(facts['machine'])}"
        case "emits":
            return f"{facts['output']} {event_text(facts['event'], facts['value'])} to {printable(facts['plugin'])}"
        case "delivers":
            return f"{', '.join(facts['outputs'])} by {printable(facts['plugin'])}"
        case "undelivered":
            error = printable(facts["error"].partition(chr(10))[0])
            return f"{facts['output']} by {printable(facts['plugin'])}, {facts['attempts']} attempts: {error}"
        case "timer" | "cancels":
            return _timer_text(facts, time_text)
        case "replies":
            return f"{facts['outcome']} {value_text(facts['value'])}"
        case "faults":
            where = f"timer {facts['timer']}" if facts["timer"] else facts["event"] or "its creation"
            return printable(f"{where}: {facts['error'].partition(chr(10))[0]}")
        case "resume" | "skip":
            return f"the fault of record {facts['fault']}"
        case "missing":
            return f"records {facts['first']} to {facts['last']} are {'lost' if facts['lost'] else 'trimmed'}"
        case "unreadable":
            return printable(facts["error"])
        case _:
            return ""


def _from(before: str) -> str:
    return f" from {printable(before)}" if before else ""


def _arrival_text(facts: Mapping[str, Any]) -> str:
    if facts["event"] is None and not facts["message"]:
        return "an event that was sent at most once, and is in no record"
    if facts["event"] is None:
        return f"{facts['message']}, whose record is not kept"
    created = f"creates {printable(facts['creates'])} " if facts.get("creates") else ""
    event = event_text(facts["event"], facts.get("value", b""))
    copy = ", a copy that is dropped" if facts.get("copy") else ""
    what = f"{facts['message']} {created}{event}".rstrip()
    return f"{what}{_from(facts.get('sender', ''))}{copy}"


def _timer_text(facts: Mapping[str, Any], time_text: Callable[[int], str]) -> str:
    if "event" not in facts:
        return printable(facts["timer"])
    every = f", every {span_text(facts['every_ms'])}" if facts["every_ms"] else ""
    event = "" if facts["event"] == facts["timer"] else f": {printable(facts['event'])}"
    return f"{printable(facts['timer'])}{event}, due {time_text(facts['due_ms'])}{every}"
