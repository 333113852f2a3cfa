"""What a page of a library is: the contract between the gateway's shell and the libraries of this machine.

    PAGE = Page("store", "Objects", "The objects of a store.", show, files={"store.css": …})

A library names its page by an entry point of the group `boki.pages`. It is served at `/pages/NAME`, with the Host, Origin and
token rules of every page. `show` gets what the query asks and gives the content, made with `boki_gateway.pages.markup`; header,
errors, policy and what keeps the page up to date are the shell's. The page is read whole without JavaScript. With it, once
something happens in the stream that the content names, the elements that have the attribute `data-region` are asked for again
and replaced.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from xml.etree.ElementTree import Element

from boki import Client
from boki_common.errors import InvalidArgument

GROUP: Final = "boki.pages"
ROOT: Final = "/pages"


@dataclass(frozen=True, slots=True)
class Live:
    """What makes a page old: a record of a stream behind a position. Without a tag, any of the book."""

    book: str | int
    tag: str | None
    position: int


@dataclass(frozen=True, slots=True)
class Content:
    """What is shown: a title, and elements below the heading that says it."""

    title: str
    body: Sequence[Element]
    live: Live | None = None
    status: int = 200


@dataclass(frozen=True, slots=True)
class Visit:
    """One look at a page: what the query asks. `client` is a session of the gateway's, and stays its."""

    client: Client
    query: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str | None:
        """A value of the query, None if it is not there or empty, as forms send what nobody filled in."""
        return self.query.get(name) or None

    def whole(self, name: str) -> int | None:
        """The same as a seqnum or another whole number above 0. Raises InvalidArgument."""
        text = self.text(name)
        if text is None:
            return None
        if text.isascii() and text.isdigit() and len(text) < 20 and 0 < int(text) < 2**63:
            return int(text)
        raise InvalidArgument(f"{name}: expected a whole number above 0, found {text!r:.80}", found=text[:80])


Show: TypeAlias = Callable[[Visit], Awaitable[Content]]


@dataclass(frozen=True, slots=True)
class Page:
    """See the module. `files` are served at `/assets/NAME/FILE`; those that end with `.css` are loaded with the page."""

    name: str
    title: str
    summary: str
    show: Show
    files: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return f"{ROOT}/{self.name}"

    def asset(self, file: str) -> str:
        """Where a file of it is served."""
        return f"/assets/{self.name}/{file}"
