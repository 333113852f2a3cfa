"""The pages of the libraries of this machine: found by entry points, served in the shell.

The gateway knows none of them by name. One that cannot be loaded is logged, and the gateway serves without it; one that fails
while it is shown says so in the shell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Final

from aiohttp import web

from boki_common.errors import BokiError, CallTimeout
from boki_common.logs import get_logger
from boki_gateway.calls.call import Answer, Call, Handler
from boki_gateway.calls.http_errors import error_answer, internal_answer, status_of
from boki_gateway.calls.table import Route
from boki_gateway.pages import assets, shell
from boki_gateway.pages.page_routes import file_route, page_route
from boki_gateway.pages.pages import GROUP, Content, Page, Visit

HEADERS: Final = assets.HEADERS | {
    "Content-Security-Policy": assets.POLICY.replace("form-action 'none'", "form-action 'self'"),
    "Cache-Control": "no-store",
}
"""Forms of a page ask the page."""

_log = get_logger("gateway")


def installed() -> tuple[Page, ...]:
    """The pages of the libraries that are installed, in the order of their names. It reads files: not for an event loop."""
    found: dict[str, Page] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda one: one.name):
        try:
            page = entry.load()
            if not isinstance(page, Page):
                raise TypeError(f"expected a Page, found {type(page).__name__}")
            if page.name in found:
                raise ValueError(f"there is a page {page.name!r} already")
        except Exception as fault:  # noqa: BLE001 - whatever a library does, the gateway serves
            _log.error("the page of a library is left out", page=entry.name, where=entry.value, error=repr(fault))
            continue
        found[page.name] = page
    return tuple(found.values())


def library_routes(pages: Sequence[Page]) -> list[Route]:
    """Their routes."""
    routes = []
    for page in pages:
        summary = f"{page.summary} A page of a library."
        routes.append(page_route(page.path, f"page_{page.name}", summary, _shown(page, pages), "text/html"))
        for name, data in page.files.items():
            summary = f"A file of the page {page.name}."
            named = f"asset_{page.name}_{name}"
            routes.append(file_route(page.asset(name), named, summary, data, assets.content_type(name)))
    return routes


def _shown(page: Page, pages: Sequence[Page]) -> Handler:
    async def serve(call: Call) -> Answer:
        content = await _content(page, call)
        data = shell.document(content, page, pages)
        return web.Response(
            body=data, status=content.status, content_type="text/html", charset="utf-8", headers=HEADERS
        )

    return serve


async def _content(page: Page, call: Call) -> Content:
    limit_s = call.parts.settings.call_timeout_s
    try:
        try:
            async with asyncio.timeout(limit_s):
                return await page.show(Visit(call.session, dict(call.request.query)))
        except TimeoutError as fault:
            raise CallTimeout(f"the page was not made within {limit_s:g} s; ask for less, or later") from fault
    except BokiError as error:
        status = status_of(error)
        return shell.failure(error_answer(error, changes=False), status)
    except Exception as fault:  # noqa: BLE001 - a fault of the library: logged, and shown in the shell
        _log.error("a page could not be made", page=page.name, error=repr(fault), exc_info=True)
        return shell.failure(internal_answer(), 500)
