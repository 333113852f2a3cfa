"""Machines as elements of a page. Pure.

Names and values come from users of the book and are not trusted: they become text in an element or the value of an attribute, never
markup.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final
from xml.etree.ElementTree import Element

from boki_gateway.pages.markup import Node, address, make
from boki_gateway.pages.parts import choice, facts, field, moment
from boki_gateway.pages.texts import printable, span_text
from bokirsm.machine.refs import Ref
from bokirsm.model.events import Message, MessageId
from bokirsm.model.outputs import WaitingOutput
from bokirsm_tools.hosts import Hosts, host_text
from bokirsm_tools.listing import Listing
from bokirsm_tools.machines import Life, Machine, Status
from bokirsm_tools.timeline import Entry
from bokirsm_tools.wording import (
    HEAD,
    KEYS,
    entry_text,
    event_text,
    fault_text,
    message_text,
    outputs_text,
    stack_lines,
    value_text,
)

PATH: Final = "/pages/rsm"
_COLOURS: Final[dict[Status, str]] = {
    "ready": "good",
    "new": "idle",
    "faulted": "bad",
    "halted": "idle",
    "absent": "warn",
}


def intro() -> Element:
    """Return the text that introduces the page."""
    return make(
        "p",
        "State machines live in a book. Name the book to see its machines, or a machine to see its state and fields, what waits for it, "
        "why it failed, and all that it did.",
        class_="intro",
    )


def ask(book: str | None, query: Mapping[str, str | None]) -> Element:
    """Return the form for a book and filters of its machines, filled in with the query of this page."""
    return make(
        "form",
        make("label", "Book", field("book", book, required=True)),
        make("label", "App", field("app", query.get("app"), placeholder="any")),
        make("label", "Class", field("class", query.get("class"), placeholder="any")),
        make("label", "State", field("state", query.get("state"), placeholder="any")),
        make("label", "Fault", choice("faulted", query.get("faulted"), (("", "with or without"), ("1", "with")))),
        make("label", "Machine", field("id", query.get("id"), placeholder="any")),
        make("button", "Show", type="submit"),
        class_="ask panel",
        method="get",
        action=PATH,
        role="search",
    )


def place(book: str, ref: str) -> str:
    """Return the address of a machine's page."""
    return address(PATH, book=book, id=ref)


def where(book: str, newest: str | None) -> Element:
    """Return the paragraph above a machine: a link to its book and, beside an old part of the timeline, to the newest part."""
    link = make("a", printable(book), href=address(PATH, book=book))
    now = make("a", "Show what it does now", href=newest) if newest else None
    return make("p", "A machine of the book ", link, ". " if newest else None, now, class_="intro")


def _status(status: Status) -> Element:
    return make("span", status, class_=f"state {_COLOURS[status]}")


def _host(name: str) -> Element:
    return make("span", host_text(name), title=printable(name))


# -- a book


def apps(book: str, groups: Sequence[str]) -> Element | None:
    """Return links to the apps of a book; None if there is only one."""
    if len(groups) < 2:
        return None
    chips = [make("li", make("a", printable(name), href=address(PATH, book=book, app=name))) for name in groups]
    title = make("h2", "Apps", id="apps-title")
    return make("section", title, make("ul", *chips, class_="chips", aria_labelledby="apps-title"), class_="panel")


def problems(errors: Sequence[Exception]) -> Element:
    """Return the reasons why some machines are not shown."""
    rows = [make("li", printable(str(one))) for one in errors[:HEAD]]
    head = make("strong", "Machines that need a record which this gateway cannot read are not shown:")
    return make("div", head, make("ul", *rows), id="unreadable", class_="problem", data_region=True)


def machines(book: str, found: Listing, hosts: Mapping[str, Hosts], query: Mapping[str, str | None]) -> Element:
    """Return the table of one page of machines, with a link to the next page.

    Args:
        book: the book.
        found: the page.
        hosts: those of each app.
        query: the filters, for the link to the next page.
    """
    rows = [_row(book, one, hosts) for one in found.rows]
    heads = ("Machine", "Class", "Status", "Waiting", "Commits", "Changed (UTC)")
    head = make("tr", *(make("th", name, scope="col", class_=_numbers(name)) for name in heads))
    table: Node = make("p", "There is none.", class_="empty")
    if rows:
        body = make(
            "table", make("thead", head), make("tbody", *rows), class_="machines", aria_labelledby="machines-title"
        )
        table = make("div", body, class_="scroll")
    more: Node = None
    if found.after is not None:
        kept = {name: query.get(name) for name in ("app", "state", "class", "faulted")}
        link = address(PATH, **{"book": book, **kept, "after": found.after})
        more = make("p", make("a", "More machines", href=link), class_="note")
    title = make("h2", "Machines", make("small", "by name"), id="machines-title")
    return make("section", title, table, more, id="machines", class_="panel", data_region=True)


def _numbers(name: str) -> str | None:
    return "number" if name in ("Waiting", "Commits") else None


def _row(book: str, one: Machine, hosts: Mapping[str, Hosts]) -> Element:
    ref = Ref.parse(one.ref)
    state = one.state
    alone = "" if one.status == "halted" else hosts[ref.group].text(ref.partition)
    why = make("div", fault_text(one.fault), class_="sub wrong") if one.fault is not None else None
    lonely = make("div", alone, class_="sub wrong") if alone else None
    place_of = make("div", f"{printable(ref.group)}, partition {ref.partition}", class_="sub")
    return make(
        "tr",
        make("th", make("a", printable(ref.name), href=place(book, one.ref)), place_of, scope="row"),
        make("td", printable(one.kind), data_label="Class"),
        make("td", _status(one.status), " ", _state_of(one), why, lonely, class_="stands", data_label="Status"),
        make("td", f"{len(one.waits):,}", class_="number", data_label="Waiting"),
        make("td", "" if state is None else f"{state.k:,}", class_="number", data_label="Commits"),
        make("td", moment(state.at_ms) if state is not None and state.k else None, data_label="Changed (UTC)"),
        data_key=one.ref,
    )


def _state_of(one: Machine) -> Node:
    return make("code", printable(one.state.state)) if one.state is not None and one.state.state else None


# -- a machine


def known(book: str, life: Life, hosts: Hosts) -> Element:
    """Return the facts of a machine as a list."""
    one, ref = life.machine, Ref.parse(life.machine.ref)
    app = make("a", printable(ref.group), href=address(PATH, book=book, app=ref.group))
    rows: list[tuple[str, Node]] = [("Status", _status(one.status)), ("App", app)]
    rows.append(("Class", make("code", printable(one.kind)) if one.kind else "none: what was sent to it is dropped"))
    if one.state is not None:
        rows.append(("State", _state_of(one)))
        rows.append(("Commits", f"{one.state.k:,}"))
        rows.append(("Changed", moment(life.newest[1] if life.newest is not None else one.state.at_ms)))
    rows.append(("Partition", str(ref.partition)))
    owner = hosts.owners.get(ref.partition)
    if owner is not None and owner.host:
        rows.append(("Host", make("span", _host(owner.host), ", since ", moment(owner.since_ms))))
    if alone := hosts.text(ref.partition):
        rows.append(("No host", make("span", alone, class_="wrong")))
    return facts(rows)


def fault(book: str, life: Life) -> Element:
    """Return the section with the fault of a machine, and the commands that end it; it is empty while the machine has none."""
    found = life.machine.fault
    node: Node = None
    if found is not None:
        since = make("span", " since ", moment(life.fault_ms)) if life.fault_ms else None
        what = make("p", fault_text(found), since, class_="problem")
        stack: Node = make("p", "Its stack is not kept any more.", class_="note")
        if life.stack:
            lines = "\n".join(stack_lines(life.stack)[1:])
            text = make("pre", lines, tabindex=0, role="region", aria_label="The stack trace")
            stack = make("details", make("summary", "Stack, innermost call last"), text, id="stack")
        end = f"{shlex.quote(life.machine.ref)} --book {shlex.quote(book)}"
        mends = make(
            "p",
            "Once its code is mended, ",
            make("code", printable(f"boki rsm resume {end}")),
            " has the event handled again; ",
            make("code", printable(f"boki rsm skip {end}")),
            " drops it.",
            class_="note",
        )
        node = make("section", make("h2", "Fault"), what, stack, mends, class_="panel")
    return make("div", node, id="fault", data_region=True)


def fields(life: Life) -> Element:
    """Return the section with the stored fields of a machine."""
    state = life.machine.state
    rows: list[Element] = []
    notes: list[Element] = []
    if state is not None:
        rows += [_field(name, value) for name, value in state.registers.items()]
        for name, table in state.tables.items():
            rows += [_field(name, value, key) for key, value in islice(table.items(), KEYS)]
            if len(table) > KEYS:
                more = f"{printable(name)} has {len(table) - KEYS:,} more keys."
                notes.append(make("p", more, class_="note"))
    body: Node = make("p", "None is stored.", class_="empty")
    if rows:
        head = make("tr", make("th", "Field", scope="col"), make("th", "Value", scope="col"))
        body = make("div", make("table", make("thead", head), make("tbody", *rows), class_="fields"), class_="scroll")
    title = make("h2", "Fields", id="fields-title")
    return make("section", title, body, *notes, id="fields", class_="panel", data_region=True)


def _field(name: str, value: bytes, key: bytes | None = None) -> Element:
    text = printable(name) if key is None else f"{printable(name)}[{value_text(key)}]"
    return make("tr", make("th", make("code", text), scope="row"), make("td", make("code", value_text(value))))


def waiting(life: Life) -> Element:
    """Return the section with the messages that wait for a machine, its outputs that wait for plugins, and its timers."""
    one = life.machine
    inbox = [pair for pair in one.waits if pair[0] not in life.passed]
    deferred = [pair for pair in one.waits if pair[0] in life.passed]
    rows = [_message(id, message, "inbox") for id, message in inbox[:HEAD]]
    rows += [_message(id, message, "deferred") for id, message in deferred[:HEAD]]
    rows += [_output(id, waits, one) for id, waits in one.outputs[:HEAD]]
    for timer in [] if one.state is None else one.state.timers.values():
        every = f", every {span_text(timer.every_ms)}" if timer.every_ms else ""
        when = make("td", moment(timer.due_ms), every)
        text = f"{printable(timer.name)}: {event_text(timer.event, timer.body)}"
        rows.append(make("tr", make("th", make("code", text), scope="row"), make("td", "timer"), when))
    body: Node = make("p", "Nothing waits.", class_="empty")
    if rows:
        heads = make("tr", *(make("th", name, scope="col") for name in ("Event", "Where", "Message, or due (UTC)")))
        body = make("div", make("table", make("thead", heads), make("tbody", *rows), class_="waiting"), class_="scroll")
    left = max(0, len(inbox) - HEAD) + max(0, len(deferred) - HEAD) + max(0, len(one.outputs) - HEAD)
    note = make("p", f"and {left:,} more", class_="note") if left else None
    counted = f"{len(inbox):,} in the inbox, {len(deferred):,} deferred" + (
        f", {outputs_text(one)}" if one.outputs else ""
    )
    title = make("h2", "What waits", make("small", counted), id="waiting-title")
    return make("section", title, body, note, id="waiting", class_="panel", data_region=True)


def _message(id: MessageId, message: Message, place_of: str) -> Element:
    text = make("th", make("code", message_text(message)), scope="row")
    return make("tr", text, make("td", place_of), make("td", make("code", str(id))), data_key=str(id))


def _output(id: MessageId, waits: WaitingOutput, one: Machine) -> Element:
    output = waits.output
    text = make("th", make("code", event_text(output.event, output.body)), scope="row")
    failure = one.failures.get(output.plugin)
    error = (
        f": {printable(failure.error.partition(chr(10))[0])}" if failure is not None and failure.output == id else ""
    )
    place_of = make("td", f"for {printable(output.plugin)} since ", moment(waits.time_ms), error)
    return make("tr", text, place_of, make("td", make("code", str(id))), data_key=f"output-{id}")


def timeline(book: str, ref: str, entries: Sequence[Entry], older: str | None) -> Element:
    """Return the section with a part of a machine's timeline, the newest entry first.

    Args:
        book: the book.
        ref: the machine.
        entries: the part, the oldest first.
        older: the place of the part before; None if there is none.
    """
    rows = [_entry(one) for one in reversed(entries)]
    body: Node = make("p", "Nothing that it did is kept.", class_="empty")
    if rows:
        heads = make("tr", *(make("th", name, scope="col") for name in ("What", "", "Commit", "Time (UTC)", "Record")))
        body = make("div", make("table", make("thead", heads), make("tbody", *rows), class_="entries"), class_="scroll")
    link: Node = None
    if older is not None:
        link = make("p", make("a", "Older", href=address(PATH, book=book, id=ref, before=older)), class_="note")
    title = make("h2", "Timeline", make("small", "newest first"), id="timeline-title")
    return make("section", title, body, link, id="timeline", class_="panel", data_region=True)


def _entry(one: Entry) -> Element:
    k = one.facts.get("k")
    bad = one.kind in ("faults", "missing", "unreadable")
    return make(
        "tr",
        make("th", make("span", one.kind, class_="kind wrong" if bad else "kind"), scope="row"),
        make("td", make("code", entry_text(one, _utc)), class_="what"),
        make("td", f"#{k}" if k else ""),
        make("td", moment(one.time_ms) if one.time_ms else None),
        make("td", make("code", str(one.seqnum))),
    )


def _utc(time_ms: int) -> str:
    """Return a time as text: 2026-11-22T06:53:11.730Z."""
    return moment(time_ms).get("datetime", "")
