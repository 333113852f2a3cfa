"""The page of a store's objects, in the gateway: `/pages/store?book=B&object=O`.

| query | shows |
|---|---|
| none | a form |
| book | the objects that the newest records are about, and collections |
| book, collection, after | ids of a collection |
| book, object | its history, and what the newest version changed; both follow the log |
| and at | what that version changed |
| and before, after | what changed between two places |
| and until | history up to there |

It reads only, through a store that makes no checkpoints. `drawing` makes its elements.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import Final

from boki_common.errors import Trimmed
from boki_gateway.calls.names import parse_name
from boki_gateway.pages.assets import package_file
from boki_gateway.pages.markup import make
from boki_gateway.pages.pages import Content, Live, Page, Visit
from boki_gateway.pages.texts import printable
from bokilib.records.codec import JsonObject
from bokilib.records.tags import store_object
from bokistore import MISSING, BokiStore, Missing, StoreSettings
from bokistore.model.operations import differences
from bokistore_tools import drawing
from bokistore_tools.drawing import NOTHING, Compared, Newest
from bokistore_tools.listing import CHECKPOINT, recent

RECENT_RECORDS: Final = 100
VERSIONS: Final = 25
IDS: Final = 200


async def show(visit: Visit) -> Content:
    """Answer a query with a page."""
    book, name, collection = visit.text("book"), visit.text("object"), visit.text("collection")
    if book is None:
        return _welcome(name)
    number = parse_name(book, "book")
    store = BokiStore(visit.client.book(number), settings=StoreSettings(checkpoints=False))
    if name is not None:
        content, position = await _object(store, book, name, visit)
        return replace(content, live=Live(number, store_object(name), position))
    if collection is not None:
        return await _collection(store, book, collection, visit.text("after"))
    position = await store.log.book.now()
    return replace(await _book(store, book), live=Live(number, None, position))


def _welcome(name: str | None) -> Content:
    intro = make(
        "p",
        "A store is a book of JSON objects. Name the book to see which objects changed last, or an object to see its history, "
        "what changed between any two versions, and each change as it comes.",
        class_="intro",
    )
    return Content("Objects", [intro, drawing.ask(None, name)])


async def _book(store: BokiStore, book: str) -> Content:
    found = await recent(store, RECENT_RECORDS)
    body = [drawing.ask(book, None), drawing.changed_last(book, found), drawing.collections(book, found.collections)]
    return Content(f"Book {printable(book)}", body)


async def _collection(store: BokiStore, book: str, collection: str, after: str | None) -> Content:
    ids = await store.collection(collection, dict).ids()
    start = 0 if after is None else bisect_right(ids, after)
    listed = drawing.collection_ids(book, collection, ids[start : start + IDS], len(ids), after)
    more = [drawing.where(book, "A collection"), drawing.ask(book, None), listed]
    return Content(f"Collection {printable(collection)}", more)


async def _object(store: BokiStore, book: str, name: str, visit: Visit) -> tuple[Content, int]:
    """And the position that the object was looked at."""
    until = visit.whole("until")
    position = await store.log.book.now()
    view = await store.views.one(name, position)
    found = await store.object(name).history(stop=(until or position) + 1, limit=VERSIONS + 1)
    known = Newest(found[-VERSIONS:], len(found) > VERSIONS)
    pinned = any(visit.text(one) for one in ("at", "before", "after", "until"))
    where = drawing.where(book, "An object", drawing.place(book, name) if pinned else None)
    body = [drawing.ask(book, name), where, drawing.facts(view.exists, view.seen, view.expires_ms, known)]
    compared = await _compared(store, name, known, visit)
    body.append(
        make("div", drawing.timeline(book, name, known, compared), drawing.comparison(compared), class_="columns")
    )
    return Content(printable(name), body), position


async def _compared(store: BokiStore, name: str, known: Newest, visit: Visit) -> Compared:
    """Return the two places to compare: those that the query names, or the newest version and the one before."""
    before, after = visit.whole("before"), visit.whole("after") or visit.whole("at")
    if before is not None and after is not None and before > after:
        before, after = after, before
    if after is None and before is None:
        if not known.versions:
            return NOTHING
        after = known.versions[-1].seqnum
    after = after or await store.log.book.now()
    state = await _state(store, name, known, after)
    value = None if isinstance(state, Missing) else state
    try:
        base = await _state(store, name, known, before or after - 1)
    except Trimmed:
        return Compared(None, after, None, value)
    return Compared(before or after - 1, after, differences(base, state), value)


async def _state(store: BokiStore, name: str, known: Newest, at: int) -> JsonObject | Missing:
    """Return an object as of a place, from the known versions if they reach so far. Raises Trimmed."""
    versions = known.versions
    number = bisect_right(versions, at, key=lambda version: version.seqnum)
    if number:
        value = versions[number - 1].value
        return MISSING if value is None else value
    if versions and not known.older and versions[0].kind != CHECKPOINT:
        return MISSING  # it begins with them
    if versions and not known.older:
        kept = versions[0].seqnum
        raise Trimmed(
            f"expected object {name!r} as of {at}, found that it is kept from {kept} on", mark=kept, object=name
        )
    return (await store.views.one(name, at)).content if at else MISSING


PAGE: Final = Page(
    "store",
    "Objects",
    "Objects of a store, and their history.",
    show,
    files={"store.css": package_file("bokistore_tools", "store.css")},
)
