"""What a page of a library is asked, and where it is."""

from __future__ import annotations

from typing import Any, cast

import pytest

from boki_common.errors import InvalidArgument
from boki_gateway.pages.pages import Content, Page, Visit


def visit(**query: str) -> Visit:
    return Visit(cast("Any", None), query)


def test_what_nobody_filled_in_is_not_there() -> None:
    assert (visit(a="").text("a"), visit().text("a"), visit(a="x").text("a")) == (None, None, "x")
    assert (visit(a="").whole("a"), visit(a=f"{2**63 - 1}").whole("a"), visit(a="007").whole("a")) == (
        None,
        2**63 - 1,
        7,
    )


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", "²", "9" * 19 + "9", "1" * 5000])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="a: expected a whole number"):
        visit(a=text).whole("a")


def test_where_it_is() -> None:
    async def show(_visit: Visit) -> Content:
        return Content("x", [])

    page = Page("x", "X", "A page.", show)
    assert (page.path, page.asset("x.css")) == ("/pages/x", "/assets/x/x.css")
