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
    return tuple(_page(path, name, summary, pages) for path, name, summary in _OWN)


def _page(path: str, name: str, summary: str, pages: Sequence[Page]) -> Route:
    data, kind = assets.FILES[name], assets.content_type(name)
    return Route(
        method="GET",
        path=path,
        named=f"page_{name.replace('.', '_')}",
        summary=summary,
        handler=file_handler(shell.with_links(data, pages) if kind == "text/html" else data, kind),
        group="pages",
        content_type=kind,
        session=False,
    )


def file_handler(data: bytes, kind: str) -> Handler:
    """Serves bytes that do not change."""

    async def serve(_call: Call) -> Answer:
        return web.Response(body=data, content_type=kind, charset="utf-8", headers=assets.HEADERS)

    return serve


PAGE_ROUTES: Final = page_routes()
"""Without libraries."""
