"""The shell around pages: where a browser gets what is new, and links that lead to pages."""

from __future__ import annotations

from boki_gateway.pages.pages import Content, Live, Page, Visit
from boki_gateway.pages.shell import document, events_address, with_links


async def show(_visit: Visit) -> Content:
    return Content("x", [])


PAGE = Page("x", "<X>", "A page.", show)


def test_the_address_of_events_has_names_as_the_api_writes_them() -> None:
    assert events_address(Live(42, None, 0)) == "/v1/books/~42/events?start=1"
    assert events_address(Live("~tmp", "~t", 5)) == "/v1/books/~~tmp/events?tag=~~t&start=6"
    assert events_address(Live("a/b?c", "x y", 5)) == "/v1/books/a%2Fb%3Fc/events?tag=x+y&start=6"


def test_links() -> None:
    assert with_links(b"<nav><!-- libraries --></nav>", [PAGE]) == b'<nav><a href="/pages/x">&lt;X&gt;</a></nav>'
    assert with_links(b"<nav><!-- libraries --></nav>", []) == b"<nav></nav>"


def test_a_text_that_is_no_unicode_is_shown_as_far_as_it_is() -> None:
    assert b"<h1>a?</h1>" in document(Content("a\ud800", []), PAGE, [PAGE])
