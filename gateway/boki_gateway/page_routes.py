"""The routes of the pages for people: the status page at `/`, the description of the API at `/reference`, and their files."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from boki_gateway import assets
from boki_gateway.call import Answer, Call, Handler
from boki_gateway.table import Route


def _file(name: str) -> Handler:
    async def serve(_call: Call) -> Answer:
        return web.Response(
            body=assets.FILES[name], content_type=assets.content_type(name), charset="utf-8", headers=assets.HEADERS
        )

    return serve


def _page(path: str, name: str, summary: str) -> Route:
    return Route(
        method="GET",
        path=path,
        name=f"page_{name.replace('.', '_')}",
        summary=summary,
        handler=_file(name),
        group="pages",
        content_type=assets.content_type(name),
        session=False,
    )


PAGE_ROUTES: Final = (
    _page("/", "status.html", "The status page."),
    _page("/reference", "reference.html", "The description of this API for people."),
    _page("/assets/status.js", "status.js", "Draws the status page."),
    _page("/assets/reference.js", "reference.js", "Draws the description."),
    _page("/assets/page.css", "page.css", "How both look."),
    _page("/assets/icon.svg", "icon.svg", "The icon."),
)
