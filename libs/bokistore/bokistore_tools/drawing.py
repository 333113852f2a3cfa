"""How objects, their history and their differences are drawn as elements of a page. Pure.

Whatever has a name or a value here may come from anybody: it is text in an element or in the value of an attribute, never more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from boki_gateway.pages.markup import Node, address, make
from boki_gateway.pages.parts import facts as facts_of
from boki_gateway.pages.parts import field, json_block, moment
from boki_gateway.pages.texts import preview, printable
from bokilib.records.codec import JsonObject
from bokistore import Change, Version
from bokistore.model.operations import Missing
from bokistore_tools.listing import Recent, Touched
from bokistore_tools.wording import WHOLE_OBJECT, operation_text, sign_of

PATH: Final = "/pages/store"
CELL_CHARS: Final = 600
CHANGES: Final = 300
OPERATIONS: Final = 12
_WORDS: Final = {"+": "made", "-": "removed", "~": "changed"}
_CLASSES: Final = {"+": "made", "-": "removed", "~": "other"}
_SIGNS: Final = {"+": "+", "-": "−", "~": "~"}


class Newest(NamedTuple):
    """Versions of an object, oldest first, and whether the log keeps older ones."""

    versions: Sequence[Version]
    older: bool


class Compared(NamedTuple):
    """Two places of the log between which an object is compared.

    Attributes:
        before: None where what was before is not kept.
        changes: None where they are not known.
    """

    before: int | None
    after: int
    changes: Sequence[Change] | None
    value: JsonObject | None


NOTHING: Final = Compared(None, 0, None, None)
"""There is no version."""


def ask(book: str | None, name: str | None) -> Element:
    """Draw the form that asks for a book and an object."""
    return make(
        "form",
        make("label", "Book", field("book", book, required=True)),
        make("label", "Object", field("object", name, placeholder="any")),
        make("button", "Show", type="submit"),
        class_="ask panel",
        method="get",
        action=PATH,
        role="search",
    )


def where(book: str, what: str, newest: str | None = None) -> Element:
    """Which book it is of; and where the newest is shown, if something else is."""
    link = make("a", printable(book), href=address(PATH, book=book))
    now = make("a", "Show the newest", href=newest) if newest else None
    return make("p", f"{what} of the book ", link, ". " if newest else None, now, class_="intro")


def place(book: str, name: str, **query: int | None) -> str:
    """Return the address of an object's page."""
    return address(PATH, book=book, object=name, **query)


# -- a book


def changed_last(book: str, found: Recent) -> Element:
    """Draw the objects that the newest records of a book change."""
    rows = [_touched(book, one) for one in found.objects]
    records = "all {} records of the book" if found.whole else "the newest {} records"
    note = f"Of {records.format(f'{found.records:,}')}." if found.records else "The book has no records."
    names = ("Object", "What happened last", "When (UTC)", "Seqnum")
    heads = make(
        "tr", *(make("th", name, scope="col", class_="number" if name == "Seqnum" else None) for name in names)
    )
    table: Node = None
    if rows:
        body = make(
            "table", make("thead", heads), make("tbody", *rows), class_="listed", aria_labelledby="objects-title"
        )
        table = make("div", body, class_="scroll")
    return make(
        "section",
        make("h2", "Changed last", id="objects-title"),
        table if table is not None else make("p", "No object was met.", class_="empty"),
        make("p", note, class_="note"),
        id="objects",
        class_="panel",
        data_region=True,
    )


def _touched(book: str, one: Touched) -> Element:
    link = make("a", printable(one.name), href=place(book, one.name))
    return make(
        "tr",
        make("th", link, scope="row"),
        make("td", _kind(one.kind)),
        make("td", moment(one.time_ms)),
        make("td", str(one.seqnum), class_="number"),
        data_key=f"{one.seqnum} {one.name}",
    )


def collections(book: str, names: Sequence[str]) -> Element:
    """Links to collections, and a form for one that is not among them."""
    chips = [make("li", make("a", printable(name), href=address(PATH, book=book, collection=name))) for name in names]
    form = make(
        "form",
        make("input", type="hidden", name="book", value=book),
        make("label", "Collection", field("collection", None, required=True)),
        make("button", "List its ids", type="submit"),
        class_="ask",
        method="get",
        action=PATH,
    )
    listed = make("ul", *chips, class_="chips", aria_labelledby="collections-title") if chips else None
    note = None if chips else make("p", "None was met in these records.", class_="note")
    title = make("h2", "Collections", id="collections-title")
    return make("section", title, listed, note, form, class_="panel collections")


def collection_ids(book: str, collection: str, ids: Sequence[str], total: int, after: str | None) -> Element:
    """Draw a page of the ids of a collection."""
    links = [make("li", make("a", printable(id), href=place(book, f"{collection}/{id}"))) for id in ids]
    more: Node = None
    if ids and len(ids) < total:
        more = make("p", make("a", "Next", href=address(PATH, book=book, collection=collection, after=ids[-1])))
    begin = "" if after is None else f", from behind {printable(after)}"
    return make(
        "section",
        make("h2", f"{len(ids):,} of {total:,} ids{begin}"),
        make("ul", *links, class_="ids") if links else make("p", "There is none.", class_="empty"),
        more,
        class_="panel",
    )


# -- an object


def facts(exists: bool, seen: int, expires_ms: int | None, known: Newest) -> Element:
    """Draw the current state of an object."""
    state = "exists" if exists else "deleted" if known.versions else "never seen"
    rows: list[tuple[str, Node]] = [("State", make("span", state, class_=f"state {'good' if exists else 'idle'}"))]
    last = (
        seen if exists else known.versions[-1].seqnum if known.versions else 0
    )  # a place says nothing about a missing object
    if last:
        rows.append(("Last record", str(last)))
    if expires_ms is not None:
        rows.append(("May be deleted after", moment(expires_ms)))
    return facts_of(rows)


def timeline(book: str, name: str, known: Newest, compared: Compared) -> Element:
    """Draw the versions, newest first, with a choice of two to compare."""
    items = [_version(book, name, version, known, compared) for version in reversed(known.versions)]
    older: Node = None
    if known.older:
        target = place(book, name, until=known.versions[0].seqnum - 1)
        older = make("p", make("a", "Older versions", href=target), class_="note")
    form = make(
        "form",
        make("input", type="hidden", name="book", value=book),
        make("input", type="hidden", name="object", value=name),
        make("ol", *items, class_="timeline", aria_labelledby="history-title"),
        make("button", "Compare two versions", type="submit", id="compare"),
        method="get",
        action=PATH,
    )
    body = form if items else make("p", "No record of it is kept.", class_="empty")
    title = make("h2", "History", make("small", "newest first"), id="history-title")
    return make("section", title, body, older, id="history", class_="panel", data_region=True)


def _version(book: str, name: str, version: Version, known: Newest, compared: Compared) -> Element:
    seqnum = version.seqnum
    lines = [make("li", make("code", operation_text(one))) for one in version.operations[:OPERATIONS]]
    if len(version.operations) > OPERATIONS:
        lines.append(make("li", f"and {len(version.operations) - OPERATIONS:,} more"))
    here = seqnum == compared.after
    head = make(
        "div",
        make("a", moment(version.time_ms), href=place(book, name, at=seqnum), aria_current="true" if here else None),
        _kind(version.kind),
        make("span", str(seqnum), class_="id", title="seqnum"),
        class_="when",
    )
    by = make("span", f"by {version.by[:8]}", class_="id", title=f"incarnation {version.by}") if version.by else None
    before = max((one.seqnum for one in known.versions if one.seqnum <= (compared.before or 0)), default=None)
    choice = make(
        "div",
        _choice("before", "from", version, chosen=seqnum == before),
        _choice("after", "to", version, chosen=here),
        by,
        class_="choice",
    )
    operations = make("ul", *lines, class_="done") if lines else None
    return make("li", head, operations, choice, class_="here" if here else None, data_key=str(seqnum))


def _choice(name: str, text: str, version: Version, *, chosen: bool) -> Element:
    """Draw a radio button of a version, with a label for screen readers."""
    one = make(
        "input",
        type="radio",
        name=name,
        value=str(version.seqnum),
        id=f"{name}-{version.seqnum}",
        checked=chosen,
        aria_label=f"compare {text} {version.seqnum}",
    )
    return make("label", one, " ", text, for_=f"{name}-{version.seqnum}")


def _kind(kind: str) -> Element:
    return make("span", kind, class_=f"kind {kind}")


def comparison(compared: Compared) -> Element:
    """Draw the changes between two places, and the object at the second."""
    if compared == NOTHING:
        title = make("h2", "What changed", id="changes-title")
        empty = make("p", "Nothing yet.", class_="empty")
        return make("section", title, empty, id="changes", class_="panel", data_region=True)
    whole = make(
        "details", make("summary", f"The object at {compared.after}"), _value(compared.value), id="whole", open=True
    )
    if compared.changes is None:
        body = make("p", f"What was before {compared.after} is not kept any more.", class_="note")
    elif not compared.changes:
        body = make("p", "Nothing changed.", class_="empty")
    else:
        body = _changes(compared.changes)
    between = f"from {compared.before} to {compared.after}" if compared.before else f"at {compared.after}"
    title = make("h2", "What changed", make("small", between), id="changes-title")
    return make("section", title, body, whole, id="changes", class_="panel", data_region=True)


def _changes(changes: Sequence[Change]) -> Element:
    heads = make("tr", *(make("th", name, scope="col") for name in ("Path", "Before", "After")))
    rows = [_change(change) for change in changes[:CHANGES]]
    table = make("table", make("thead", heads), make("tbody", *rows), class_="diff", aria_labelledby="changes-title")
    more = len(changes) - len(rows)
    return make("div", table, make("p", f"and {more:,} more changes", class_="note") if more else None, class_="scroll")


def _change(change: Change) -> Element:
    sign = sign_of(change)
    path = make("code", printable(change.path) or WHOLE_OBJECT)
    spoken = make("span", f"{_WORDS[sign]} ", class_="visually-hidden")
    mark = make("span", _SIGNS[sign], class_="sign", aria_hidden="true")
    cells = [
        make("td", None if isinstance(value, Missing) else make("code", preview(value, CELL_CHARS)), data_label=label)
        for label, value in (("Before", change.before), ("After", change.after))
    ]
    return make("tr", make("th", mark, spoken, path, scope="row"), *cells, class_=_CLASSES[sign])


def _value(value: JsonObject | None) -> Element:
    if value is None:
        return make("p", "There is none.", class_="empty")
    return json_block(value, "The object as JSON", "boki store get")
