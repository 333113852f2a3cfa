"""The routes of the pages for people: the status page at `/`, the description of the API at `/reference`, and their files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiohttp import web

from boki_gateway.calls.call import Answer, Call, Handler
from boki_gateway.calls.table import Route
from boki_gateway.pages import assets, shell
from boki_gateway.pages.pages import Page

_OWN: Final = (
    ("/", "status.html", "The status page."),
    ("/reference", "reference.html", "The description of this API for people."),
    ("/assets/status.js", "status.js", "Draws the status page."),
    ("/assets/reference.js", "reference.js", "Draws the description."),
    ("/assets/theme.js", "theme.js", "Light and dark."),
    ("/assets/shell.js", "shell.js", "Keeps pages of libraries up to date."),
    ("/assets/page.css", "page.css", "How all pages look."),
    ("/assets/shell.css", "shell.css", "How pages of libraries look."),
    ("/assets/icon.svg", "icon.svg", "The icon."),
)


def page_routes(pages: Sequence[Page] = ()) -> tuple[Route, ...]:
    """The routes, with links to the pages of libraries."""
    routes = []
    for path, name, summary in _OWN:
        data, kind = assets.FILES[name], assets.content_type(name)
        shown = shell.with_links(data, pages) if kind == "text/html" else data
        routes.append(file_route(path, f"page_{name}", summary, shown, kind))
    return tuple(routes)


def file_route(path: str, name: str, summary: str, data: bytes, kind: str) -> Route:
    """Serves bytes that do not change."""

    async def serve(_call: Call) -> Answer:
        return web.Response(body=data, content_type=kind, charset="utf-8", headers=assets.HEADERS)

    return page_route(path, name, summary, serve, kind)


def page_route(path: str, name: str, summary: str, handler: Handler, kind: str) -> Route:
    """Serves what a browser shows."""
    return Route(
        method="GET",
        path=path,
        named=name.replace(".", "_"),
        summary=summary,
        handler=handler,
        group="pages",
        content_type=kind,
        session=False,
    )


PAGE_ROUTES: Final = page_routes()
"""Without libraries."""
