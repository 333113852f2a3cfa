"""The pages are served with what holds a browser to them; what they draw is in `test_page_routes_chromium`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from boki_gateway.pages import assets
from boki_gateway.pages.page_routes import PAGE_ROUTES
from boki_gateway.pages.shell import LIBRARIES

if TYPE_CHECKING:
    from boki_gateway.calls.table import Route
    from boki_gateway.testing import Requester


@pytest.mark.parametrize("route", PAGE_ROUTES, ids=lambda route: route.path)
async def test_a_page(requester: Requester, route: Route) -> None:
    reply = await requester.get(route.path, theme="dark")
    assert reply.status == 200
    assert reply.headers["Content-Type"] == f"{route.content_type}; charset=utf-8"
    assert reply.headers["Content-Security-Policy"] == assets.POLICY
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.body in [data.replace(LIBRARIES, b"") for data in assets.FILES.values()]


def test_every_file_is_served() -> None:
    assert len(PAGE_ROUTES) == len(assets.FILES)
