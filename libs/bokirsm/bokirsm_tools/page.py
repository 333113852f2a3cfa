"""The page of machines, in the gateway: `/pages/rsm?book=B&id=M`.

| query | shows |
|---|---|
| none | a form |
| book | the machines of the book, for which the whole book is read |
| book and app, state, class, faulted, after | the machines that pass these filters, from a place on |
| book, id | a machine: its state and fields, what waits, its timers, its fault, its host, and its timeline; the page follows the log |
| book, id, before | an older part of the timeline |

The page only reads: it names the commands that resume a machine or skip its event. `drawing` makes its HTML.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NamedTuple

import boki
from boki_common.errors import InvalidArgument
from boki_gateway.calls.names import parse_name
from boki_gateway.pages.assets import package_file
from boki_gateway.pages.markup import make
from boki_gateway.pages.pages import Content, Live, Page, Visit
from boki_gateway.pages.texts import printable
from bokilib.append.log import Log
from bokilib.records import tags
from bokirsm.machine.refs import Ref
from bokirsm_tools import drawing
from bokirsm_tools.listing import Wanted, listing
from bokirsm_tools.reading import NotThere, entries, hosts_of, life_of, nothing_in, resolve
from bokirsm_tools.timeline import Entry

LIMIT: Final = 100
"""Machines on one page."""
ENTRIES: Final = 300
"""Entries of a timeline on one page."""
DIGITS: Final = 20


async def show(visit: Visit, clock: boki.Clock) -> Content:
    """Return the content for the query of a visit."""
    book, id = visit.text("book"), visit.text("id")
    query = {name: visit.text(name) for name in ("app", "state", "class", "faulted", "id")}
    if book is None:
        return Content("Machines", [drawing.intro(), drawing.ask(None, query)])
    number = parse_name(book, "book")
    log = Log(visit.client.book(number))
    try:
        if id is not None:
            return await _machine(log, book, await resolve(log, book, query["app"], id), visit, clock)
        return await _book(log, book, query, visit, clock)
    except NotThere as error:
        body = [drawing.ask(book, query), make("p", printable(str(error)), class_="empty")]
        return Content(printable(id or f"Book {book}"), body, status=404 if id or query["app"] else 200)


async def _book(log: Log, book: str, query: dict[str, str | None], visit: Visit, clock: boki.Clock) -> Content:
    position = await log.book.now()
    after = visit.text("after")
    wanted = Wanted(query["state"] or "", query["class"] or "", query["faulted"] is not None)
    found = await listing(log, query["app"], wanted, after=after, limit=LIMIT)
    if not found.groups:
        raise nothing_in(book, query["app"])
    groups = dict.fromkeys(Ref.parse(one.ref).group for one in found.rows)
    hosts = {one: await hosts_of(log, one, clock.now_ms()) for one in groups}
    body = [drawing.ask(book, query)]
    chips = drawing.apps(book, found.groups if query["app"] is None else [])
    body += [chips] if chips is not None else []
    body += [drawing.problems(found.unreadable)] if found.unreadable else []
    body.append(drawing.machines(book, found, hosts, query))
    live = Live(parse_name(book, "book"), None, position)
    return Content(f"Book {printable(book)}", body, None if after else live)


async def _machine(log: Log, book: str, ref: Ref[Any], visit: Visit, clock: boki.Clock) -> Content:
    life = await life_of(log, ref)
    hosts = await hosts_of(log, ref.group, clock.now_ms())
    text = visit.text("before")
    before = None if text is None else _parse_before(text)
    shown, older = await _part(log, ref, life.position + 1, before)
    body = [
        drawing.where(book, drawing.place(book, str(ref)) if before else None),
        drawing.known(book, life, hosts),
        drawing.fault(book, life),
        drawing.fields(life),
        drawing.waiting(life),
        drawing.timeline(book, str(ref), shown, None if older is None else str(older)),
    ]
    live = Live(parse_name(book, "book"), tags.rsm_partition(ref.group, ref.partition), life.position)
    return Content(printable(str(ref)), body, None if before else live)


class _Before(NamedTuple):
    """The place where a part of a timeline ends: below the entry number `at` of a record."""

    seqnum: int
    at: int

    def __str__(self) -> str:
        return f"{self.seqnum}:{self.at}"


def _parse_before(text: str) -> _Before:
    """Parse the text of a place.

    Raises:
        InvalidArgument: the text names no place.
    """
    seqnum, _, at = text.partition(":")
    if not all(one.isascii() and one.isdigit() and len(one) < DIGITS for one in (seqnum, at)):
        raise InvalidArgument(f"before: expected a place such as 90455:2, found {text!r:.80}", found=text[:80])
    return _Before(int(seqnum), int(at))


async def _part(log: Log, ref: Ref[Any], stop: int, before: _Before | None) -> tuple[list[Entry], _Before | None]:
    """Return the newest `ENTRIES` entries of a timeline before a place, and the place before them; None if there are no older ones."""
    kept: deque[tuple[Entry, _Before]] = deque(maxlen=ENTRIES + 1)
    at = _Before(0, 0)
    async for one in entries(log, ref, stop=stop if before is None else min(stop, before.seqnum + 1)):
        at = _Before(one.seqnum, at.at + 1 if one.seqnum == at.seqnum else 0)
        if before is None or at < before:
            kept.append((one, at))
    shown = list(kept)[-ENTRIES:]
    return [one for one, _ in shown], shown[0][1] if len(kept) > ENTRIES else None


def page(clock: boki.Clock) -> Page:
    """Return the page. `clock` tells which hosts are silent: the log's time stands still while no writer appends."""
    return Page(
        "rsm",
        "Machines",
        "State machines, what they did and what waits for them.",
        lambda visit: show(visit, clock),
        files={"rsm.css": package_file("bokirsm_tools", "rsm.css")},
    )


PAGE: Final = page(boki.SystemClock())
