"""The page of a book's queues in the gateway: `/pages/queue?book=B&queue=Q&group=G`.

| query | shows |
|---|---|
| none | a form |
| book | the queues of the book, for which the whole book is read |
| book, queue, group | depth, age of the oldest message, rates, shards and their owners, the oldest messages, dead letters |

It only reads, and follows the book. `drawing` makes its elements.
"""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import Element

import boki
from boki_gateway.calls.names import parse_name
from boki_gateway.pages.assets import package_file
from boki_gateway.pages.markup import make
from boki_gateway.pages.pages import Content, Live, Page, Visit
from boki_gateway.pages.texts import printable
from bokilib import Log
from bokiqueue import settings
from bokiqueue.errors import NoSuchGroup, NoSuchQueue
from bokiqueue.manage import inspection
from bokiqueue.manage.inspection import Peeked
from bokiqueue.model.events import Config
from bokiqueue.model.items import GROUP
from bokiqueue_tools import drawing

OLDEST: Final = 20
LETTERS: Final = 20
QUEUES: Final = 100
"""The most queues of a book that are looked into."""


async def show(visit: Visit, clock: boki.Clock) -> Content:
    """Return the content that the query asks for."""
    book, name = visit.text("book"), visit.text("queue")
    if book is None:
        return Content("Queues", [drawing.intro(), drawing.ask(None, name, None)])
    number = parse_name(book, "book")
    log = Log(visit.client.book(number))
    live = Live(number, None, await log.book.now())
    if name is None:
        return Content(
            f"Queues of {printable(book)}", [drawing.ask(book, None, None), await _queues(log, book, clock)], live
        )
    group = visit.text("group") or GROUP
    body = [drawing.ask(book, name, group), drawing.where(book)]
    try:
        config = (await settings.existing(log, name)).config
        body += await _queue(log, book, config, group, clock)
    except (NoSuchQueue, NoSuchGroup) as error:
        return Content(printable(name), [*body, make("p", printable(str(error)), class_="empty")], status=404)
    return Content(printable(name), body, live)


async def _queues(log: Log, book: str, clock: boki.Clock) -> Element:
    found = []
    configs = await inspection.queues(log)
    for config in configs[:QUEUES]:
        for group in sorted(config.groups) or [""]:
            found.append((config, (await inspection.look(log, config, group, at_ms=clock.now_ms()))[0]))
    return drawing.queues(book, found, len(configs) - QUEUES)


async def _queue(log: Log, book: str, config: Config, group: str, clock: boki.Clock) -> list[Element]:
    """Return the content for one group.

    Raises:
        NoSuchGroup: the group is not registered.
    """
    stats, oldest = await inspection.look(log, config, group, OLDEST, at_ms=clock.now_ms())
    rates = await inspection.rates(log, config, group)
    letters: list[Peeked] = []
    more = 0
    if config.dead_letter is not None:
        dead = await settings.find(log, config.dead_letter)
        if dead is not None:
            found, letters = await inspection.look(log, dead.config, GROUP, LETTERS)
            more = found.depth
    of = drawing.sources(oldest)
    if not oldest and config.dead_letter is None and (source := await inspection.newest_source(log, config)):
        of = [source]
    return [
        drawing.facts(config, stats, rates, of),
        drawing.shards(stats),
        drawing.oldest(stats, oldest),
        drawing.letters(book, config, letters, more, of),
    ]


def page(clock: boki.Clock) -> Page:
    """Return the page. `clock` tells which members were silent for a lease: the log's time stands still while no writer appends."""
    return Page(
        "queue",
        "Queues",
        "Queues of a book: waiting messages, consumers and dead letters.",
        lambda visit: show(visit, clock),
        files={"queue.css": package_file("bokiqueue_tools", "queue.css")},
    )


PAGE: Final = page(boki.SystemClock())
