"""The shell around pages of libraries: the header and its links, the main part, and what says whether the page is live. Pure.

Everything is in the answer of the server: scripts keep a page up to date, and are not needed to read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import quote
from xml.etree.ElementTree import Element

from boki_gateway.calls.http_errors import ErrorAnswer
from boki_gateway.calls.names import name_text
from boki_gateway.pages.markup import Node, address, make, render
from boki_gateway.pages.pages import Content, Live, Page

LIBRARIES: Final = b"<!-- libraries -->"
"""Where the gateway's own pages have the links to those of libraries."""
LIVE_HELP: Final = "Says whether this page is kept up to date"


def with_links(html: bytes, pages: Iterable[Page]) -> bytes:
    """A page of the gateway's own, with links to those of libraries."""
    return html.replace(LIBRARIES, "".join(render(_link(page, None)) for page in pages).encode())


def document(content: Content, page: Page, pages: Sequence[Page]) -> bytes:
    """The whole page."""
    styles = [
        "/assets/page.css",
        "/assets/shell.css",
        *(page.asset(name) for name in page.files if name.endswith(".css")),
    ]
    head = make(
        "head",
        make("meta", charset="utf-8"),
        make("meta", name="viewport", content="width=device-width, initial-scale=1"),
        make("meta", name="color-scheme", content="light dark"),
        make("title", f"{content.title} · {page.title} · Boki"),
        make("link", rel="icon", href="/assets/icon.svg", type="image/svg+xml"),
        *(make("link", rel="stylesheet", href=style) for style in styles),
        make("script", type="module", src="/assets/shell.js"),
    )
    main = make(
        "main",
        make("h1", content.title),
        make("p", id="problem", class_="problem", role="alert", hidden=True),
        *content.body,
        id="content",
        data_events=None if content.live is None else events_address(content.live),
    )
    skip = make("a", "To the content", class_="skip", href="#content")
    body = make("body", skip, _header(page, pages, live=content.live is not None), main, _footer(content))
    return b"<!doctype html>\n" + render(make("html", head, body, lang="en")).encode(errors="replace") + b"\n"


def failure(error: ErrorAnswer, status: int) -> Content:
    """What is shown instead of a page that could not be made."""
    again = "The same may succeed later." if error.retryable else None
    problem = make("p", make("strong", error.error), f": {error.message} ", again, class_="problem")
    return Content("This could not be shown", [problem], status=status)


def events_address(live: Live) -> str:
    """The stream by which a browser gets what comes after a position."""
    book = quote(name_text(live.book), safe="")
    tag = None if live.tag is None else name_text(live.tag)
    return address(f"/v1/books/{book}/events", tag=tag, start=live.position + 1)


def _header(page: Page, pages: Sequence[Page], *, live: bool) -> Node:
    icon = make("img", src="/assets/icon.svg", alt="", width=26, height=26)
    pill: Node = None
    if live:
        pill = make("span", "not live", id="live", class_="pill", role="status", title=LIVE_HELP, hidden=True)
    links = [make("a", "Status", href="/"), *(_link(one, page) for one in pages), make("a", "API", href="/reference")]
    theme = make("button", "◐", id="theme", type="button", aria_label="Change between light and dark", hidden=True)
    brand = make("a", icon, make("span", "Boki"), class_="brand", href="/")
    return make("header", brand, pill, make("nav", *links, theme, aria_label="Pages"))


def _link(page: Page, current: Page | None) -> Element:
    return make("a", page.title, href=page.path, aria_current="page" if page is current else None)


def _footer(content: Content) -> Node:
    note: Node = None
    if content.live is not None:
        note = make("noscript", "Without JavaScript this page is as it was when it was asked for: load it again.")
    return make("footer", note)
