"""The page of workflows, in the gateway: `/pages/flow?book=B&id=W`.

| query | shows |
|---|---|
| none | a form |
| book | the newest workflows, of all apps that the newest records mention |
| book and group, status, name, before | the workflows of one app that pass these filters, from a place on |
| book, id | a workflow: its status, its result, its timeline; the page follows the log |
| book, id, part | a part of a long timeline |

The page only reads. `drawing` and `picture` make its HTML.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, cast

import boki
from boki_common.errors import InvalidArgument
from boki_gateway.calls.names import parse_name
from boki_gateway.pages.assets import package_file
from boki_gateway.pages.markup import make
from boki_gateway.pages.pages import Content, Live, Page, Visit
from boki_gateway.pages.texts import printable
from bokiflow.history.instance_state import Status
from bokiflow.history.listing import Wanted, groups, listing, parse_before
from bokiflow_tools import drawing
from bokiflow_tools.living import living
from bokiflow_tools.picture import picture
from bokiflow_tools.reading import life_of
from bokilib.append.log import Log
from bokilib.records import tags

RECENT_RECORDS: Final = 100
"""Newest records that are read for the names of apps."""
APPS: Final = 5
"""Apps whose workflows are shown on one page, at most."""
LIMIT: Final = 50


async def show(visit: Visit) -> Content:
    """Return the content for the query of a visit."""
    book, id = visit.text("book"), visit.text("id")
    if book is None:
        return _welcome(visit)
    number = parse_name(book, "book")
    log = Log(visit.client.book(number))
    if id is not None:
        return await _workflow(log, book, id, visit)
    content, position = await _book(log, book, visit)
    return content if visit.text("before") else replace(content, live=Live(number, None, position))


def _query(visit: Visit) -> dict[str, str | None]:
    return {name: visit.text(name) for name in ("group", "status", "name", "id")}


def _welcome(visit: Visit) -> Content:
    intro = make(
        "p",
        "Workflows are durable functions on a book. Name the book to see which there are, or a workflow to see what it did, what it "
        "waits for, and each step as it comes.",
        class_="intro",
    )
    return Content("Workflows", [intro, drawing.ask(None, _query(visit))])


async def _book(log: Log, book: str, visit: Visit) -> tuple[Content, int]:
    """Return the page of a book, and the position of the log that it shows."""
    query = _query(visit)
    status = query["status"]
    if status is not None and status not in dict(drawing.STATUSES):
        raise InvalidArgument(
            f"status: expected running, blocked, completed, failed or cancelled, found {status!r:.80}"
        )
    wanted = Wanted(frozenset([cast(Status, status)] if status else []), query["name"] or "")
    position = await log.book.now()
    found = [query["group"]] if query["group"] else await groups(log, RECENT_RECORDS)
    body = [drawing.ask(book, query)]
    chips = drawing.apps(book, found)
    if chips is not None:
        body.append(chips)
    text = visit.text("before")
    before = parse_before(text) if text else None
    for name in found[:APPS]:
        rows = await listing(log, name, wanted, before=before, limit=LIMIT)
        seen = await living(log, name)
        body.append(drawing.workflows(book, name, rows, seen, {key: query[key] for key in ("status", "name")}))
    if not found:
        body.append(make("p", "No workflow was met in the newest records: name the app.", class_="empty"))
    return Content(f"Book {printable(book)}", body), position


async def _workflow(log: Log, book: str, id: str, visit: Visit) -> Content:
    found = await life_of(log, id)
    part = visit.whole("part")
    alone = (await living(log, found.group)).text(found.held, found.name)
    line = found.timeline
    now_ms = boki.SystemClock().now_ms()
    known = [drawing.where(book, drawing.place(book, id) if part else None), drawing.known(book, found, alone)]
    if line is None:
        body = [make("p", f"It ended, and {found.not_kept}.", class_="note")]
    else:
        body = [picture(book, id, line, now_ms, part)]
    call = [drawing.call(id, found.started)] if found.started is not None and found.history_kept else []
    more = [*known, drawing.ending(found), *body, *call]
    live = Live(parse_name(book, "book"), tags.flow_history(id), found.position)
    return Content(printable(id), more, live=None if found.ended is not None else live)


PAGE: Final = Page(
    "flow",
    "Workflows",
    "Workflows, and what they did.",
    show,
    files={"flow.css": package_file("bokiflow_tools", "flow.css")},
)
