"""Workflows as elements of a page. Pure.

Names and values come from users of the book and are not trusted: they become text in an element or the value of an attribute, never
markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import Element

from boki_gateway.pages.markup import Node, address, make
from boki_gateway.pages.parts import choice, facts, field, json_block, moment
from boki_gateway.pages.texts import preview, printable, span_text
from bokiflow.history.instance_state import Status
from bokiflow.history.listing import Listed, Listing
from bokiflow.model.delivery_order import start_ms
from bokiflow.model.flow_events import Started
from bokiflow.model.outcomes import Failure, Outcome
from bokiflow.model.stacks import users_stack
from bokiflow_tools.living import Living
from bokiflow_tools.timeline import Life
from bokiflow_tools.wording import (
    blocked_text,
    call_text,
    errors_below,
    idle_text,
    outcome_text,
    stack_lines,
    worker_text,
)

PATH: Final = "/pages/flow"
STATUSES: Final = (
    ("", "any"),
    ("running", "running"),
    ("blocked", "blocked"),
    ("completed", "completed"),
    ("failed", "failed"),
    ("cancelled", "cancelled"),
)
_STATES: Final[dict[str, str]] = {
    "running": "runs",
    "blocked": "bad",
    "completed": "good",
    "failed": "bad",
    "cancelled": "idle",
}


def ask(book: str | None, query: dict[str, str | None]) -> Element:
    """Return the form for a book, an app and filters of its workflows, filled in with the query of this page."""
    return make(
        "form",
        make("label", "Book", field("book", book, required=True)),
        make("label", "App", field("group", query.get("group"), placeholder="any")),
        make("label", "Status", choice("status", query.get("status"), STATUSES)),
        make("label", "Function", field("name", query.get("name"), placeholder="any")),
        make("label", "Workflow", field("id", query.get("id"), placeholder="any")),
        make("button", "Show", type="submit"),
        class_="ask panel",
        method="get",
        action=PATH,
        role="search",
    )


def place(book: str, id: str) -> str:
    """Return the address of a workflow's page."""
    return address(PATH, book=book, id=id)


def where(book: str, newest: str | None = None) -> Element:
    """Return the paragraph above a workflow: a link to its book and, on a page with an old part of the timeline, to the newest part."""
    link = make("a", printable(book), href=address(PATH, book=book))
    now = make("a", "Show what it does now", href=newest) if newest else None
    return make("p", "A workflow of the book ", link, ". " if newest else None, now, class_="intro")


def state(status: Status) -> Element:
    """Return a status as a coloured word."""
    return make("span", status, class_=f"state {_STATES[status]}")


def worker(name: str) -> Element:
    """Return a worker's short name; the whole name is its tooltip."""
    return make("span", printable(worker_text(name)), title=printable(name))


# -- a book


def apps(book: str, groups: Sequence[str]) -> Element | None:
    """Return links to the apps of a book; None if there is only one."""
    if len(groups) < 2:
        return None
    chips = [make("li", make("a", printable(name), href=address(PATH, book=book, group=name))) for name in groups]
    title = make("h2", "Apps", id="apps-title")
    return make("section", title, make("ul", *chips, class_="chips", aria_labelledby="apps-title"), class_="panel")


def workflows(book: str, group: str, found: Listing, seen: Living, query: dict[str, str | None]) -> Element:
    """Return the table of one page of workflows, the newest first, with a link to the next page.

    Args:
        book: the book.
        group: the app of the workflows.
        found: the page.
        seen: the workers of the app.
        query: the filters, for the link to the next page.
    """
    rows = [_row(book, one, seen.text(one.held, one.started.name)) for one in found.rows]
    heads = [("Workflow", None), ("Call", None), ("Status", None), ("Started (UTC)", None), ("Took", "number")]
    head = make("tr", *(make("th", name, scope="col", class_=kind) for name, kind in heads))
    table: Node = make("p", "There is none.", class_="empty")
    if rows:
        body = make("table", make("thead", head), make("tbody", *rows), class_="listed", aria_labelledby="flows-title")
        table = make("div", body, class_="scroll")
    older: Node = None
    if found.before is not None:
        link = address(PATH, **{"book": book, "group": group, **query, "before": str(found.before)})
        older = make("p", make("a", "Older workflows", href=link), class_="note")
    title = make("h2", "Workflows", make("small", f"of {printable(group)}, newest first"), id="flows-title")
    return make("section", title, table, older, id="flows", class_="panel", data_region=True)


def _row(book: str, one: Listed, alone: str) -> Element:
    started, ended = one.started, one.held.ended
    link = make("a", printable(started.id), href=place(book, started.id))
    chips = [
        make("span", f"{printable(k)}={printable(v)}", class_="kind") for k, v in sorted(started.attributes.items())
    ]
    node: Node = None
    if ended is not None:
        error = ended.outcome.error is not None
        node = make("span", outcome_text(ended.outcome), class_="sub wrong" if error else "sub")
    elif one.held.blocked:
        node = make("span", printable(one.held.blocked.partition("\n")[0])[:200], class_="sub wrong")
    elif one.held.owner:
        node = make("span", "by ", worker(one.held.owner), class_="sub")
    origin = make("div", f"fork of {printable(started.origin)}", class_="sub") if started.origin else None
    lonely = make("span", alone, class_="sub wrong") if alone else None
    took = None if ended is None else span_text(max(0, ended.at_ms - start_ms(started)))
    return make(
        "tr",
        make("th", link, make("div", *chips) if chips else None, origin, scope="row"),
        make("td", make("code", call_text(started.name, started.args)[:200]), class_="call"),
        make("td", state(one.status), " ", node, " ", lonely, class_="stands"),
        make("td", moment(start_ms(started))),
        make("td", took, class_="number"),
        data_key=started.id,
    )


# -- a workflow


def known(book: str, life: Life, alone: str = "") -> Element:
    """Return the facts of a workflow as a list. `alone` is the sentence that no living worker runs it, or ""."""
    rows: list[tuple[str, Node]] = [("Status", state(life.status))]
    started, ended = life.started, life.ended
    if started is not None:
        rows += _began(book, started)
        if life.origin:
            rows.append(("Fork of", make("a", printable(life.origin), href=place(book, life.origin))))
    if life.blocked:
        why, _, stack = life.blocked.partition("\n")
        rows.append(("Because", make("div", make("span", printable(why), class_="wrong"), stack_block(stack))))
    elif life.owner:
        rows.append(("Runs at", worker(life.owner)))
    if text := idle_text(life):
        rows.append(("Takeovers", make("span", text, class_="wrong")))
    for one in life.waits_for:
        held: list[Node] = ["its turn has come"]
        if one.holder:
            held = ["held by ", make("a", printable(one.holder), href=place(book, one.holder)), blocked_text(one)]
        lock = make("div", f"lock '{printable(one.name)}', ", *held, ", since ", moment(one.since_ms))
        rows.append(("Waits for", lock))
    rows += [("Holds", f"lock '{printable(name)}'") for name in life.holds]
    if alone:
        rows.append(("Worker", make("span", alone, class_="wrong")))
    if ended is not None:
        rows.append(("Ended", moment(ended.at_ms)))
        if started is not None:
            rows.append(("Took", make("b", span_text(max(0, ended.at_ms - start_ms(started))))))
    return facts(rows)


def _began(book: str, started: Started) -> list[tuple[str, Node]]:
    app = make("a", printable(started.group), href=address(PATH, book=book, group=started.group))
    rows: list[tuple[str, Node]] = [("App", app), ("Function", make("code", printable(started.name)))]
    if started.version:
        rows.append(("Version", printable(started.version)))
    if started.parent:
        rows.append(("Child of", make("a", printable(started.parent), href=place(book, started.parent))))
    rows += [
        (printable(name), make("span", printable(value), class_="kind")) for name, value in started.attributes.items()
    ]
    return [*rows, ("Started", moment(start_ms(started)))]


def ending(life: Life) -> Element:
    """Return the section with the result or the error of a workflow; it is empty while the workflow runs."""
    node: Node = None
    if life.outcome is not None:
        node = _ending(life.id, life.outcome)
    elif life.ended is not None:
        node = make("p", "Its result is not kept any more.", class_="note")
    return make("div", node, id="ending", data_region=True)


def _ending(id: str, outcome: Outcome) -> Element:
    error = outcome.error
    if error is None:
        node = json_block(outcome.value, "The result as JSON", f"boki flow show {printable(id)} --json")
        return make("section", make("h2", "Result"), node, class_="panel")
    kind = make("strong", printable(error.type.rpartition(":")[2]), title=printable(error.type))
    node = make("p", kind, f": {printable(error.message)}", class_="problem")
    return make("section", make("h2", "Error"), node, stack_block(error.stack), _below(error), class_="panel")


def _below(error: Failure) -> Node:
    """Return the list of the errors of a group and of the cause of an error, each with its stack; None if there are none."""
    rows = [
        make("li", make("span", heading, class_="wrong"), stack_block(one.stack), _below(one))
        for heading, one in errors_below(error)
    ]
    return make("ul", *rows) if rows else None


def stack_block(stack: str) -> Node:
    """Return the stack trace of a user's error, folded and without frames of Boki's own code; None if it is empty."""
    if not stack:
        return None
    text = make(
        "pre", "\n".join(stack_lines(users_stack(stack))[1:]), tabindex=0, role="region", aria_label="The stack trace"
    )
    return make("details", make("summary", "Stack, innermost call last"), text)


def call(id: str, started: Started) -> Element:
    """Return the section with the arguments of a workflow."""
    positional, by_name = started.args
    summary = make("summary", make("h2", "Arguments"), " ", make("code", preview(positional or by_name, 60)))
    whole = f"boki flow show {printable(id)} --json"
    block = json_block({"positional": positional, "by name": by_name}, "The arguments as JSON", whole)
    return make("details", summary, block, id="call", class_="panel")
