"""A page of the gateway as tests look at it: its text, its links, and the elements that it must not have."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser


class Page:
    """The main part of a page.

    Attributes:
        main: its HTML.
        text: its text without markup.
        links: its links to pages of the gateway, in order.
        elements: the names of its elements, as a parser of HTML sees them.
        attributes: the names of their attributes.
    """

    def __init__(self, html: str) -> None:
        """Check that no value became an element that runs code or loads anything."""
        self.main = html[html.index("<main") : html.index("</main>")]
        self.text = " ".join(unescape(re.sub(r"<[^>]*>", " ", self.main)).split())
        self.links = [unescape(link) for link in re.findall(r'href="(/pages/[^"]*)"', self.main)]
        parser = _Elements()
        parser.feed(self.main)
        self.elements, self.attributes = parser.names, parser.attributes
        assert not self.elements & {"script", "img"}


class _Elements(HTMLParser):
    """The names of the elements and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes.update(name for name, _ in attrs)
