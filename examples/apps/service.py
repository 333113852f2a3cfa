"""A process that answers requests of an application over HTTP: it starts a workflow per request, runs it, and answers with its result.

    python -m examples.apps.service URL --name s1 --application hotel --port 8001

It serves until its standard input closes, and prints nothing.

| request | answer |
|---|---|
| POST /<operation>, {"id": …, "args": […]} | 200, {"value": …, "refused": ""} if the workflow succeeded |
| | 200, {"value": null, "refused": <name of the error>} if it failed |
| | 503 if the result is not known yet; a client may send the same id again, to any service |
| | 404 if there is no such operation |
| GET / | 200 once the process serves |
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import msgspec
from aiohttp import web

import boki
import bokiflow
from boki_common.errors import BokiError, UsageError
from bokiflow.tables import Tables
from bokilib.append.log import Log
from bokistore import BokiStore, StoreSettings
from examples import process
from examples.apps.application import Application
from examples.apps.row_store import ObjectRowStore, RowStore
from examples.apps.table_row_store import TableRowStore, with_retries
from examples.hotel.application import HOTEL
from examples.movie.application import MOVIE

APPLICATIONS: Final = {one.name: one for one in (HOTEL, MOVIE)}
LEASE_S: Final = 3.0
TIMEOUT_S: Final = 10.0
SETTINGS: Final = StoreSettings(grace_ms=10_000)
HOST: Final = "127.0.0.1"


class RequestBody(msgspec.Struct, frozen=True):
    """JSON body of a request."""

    id: str
    args: list[Any]


class Service:
    """HTTP handlers that run workflows of an application on a worker.

    Attributes:
        worker: the worker; it runs while it is entered with `async with`.
    """

    def __init__(self, application: Application, data: RowStore) -> None:
        self._running: Final = application.run(data)
        self.worker: Final = bokiflow.Worker(self._running.app, data.log, lease_s=LEASE_S)

    async def answer(self, request: web.Request) -> web.Response:
        """Answer a request with the result of its workflow; see the module for the codes."""
        workflow = self._running.operations.get(request.match_info["operation"])
        if workflow is None:
            return web.json_response({"error": f"expected one of {sorted(self._running.operations)}"}, status=404)
        asked = msgspec.json.decode(await request.read(), type=RequestBody)
        try:
            handle = await self.worker.start(workflow.call(*asked.args), id=asked.id)
        except BokiError as error:
            if isinstance(error, UsageError):
                return _answer(None, type(error).__name__)
            return web.json_response({"error": str(error)}, status=503)
        try:
            return _answer(await handle.result(), "")
        except Exception as error:  # noqa: BLE001 - any error of the workflow is its result
            return await self._failed(handle, error)

    async def _failed(self, handle: bokiflow.Handle[Any], error: Exception) -> web.Response:
        """Answer with the workflow's error if it failed; otherwise the error is this process's, and the result unknown."""
        try:
            if await handle.status() == "failed":
                return _answer(None, type(error).__name__)
        except BokiError as unreachable:
            error = unreachable
        return web.json_response({"error": str(error)}, status=503)

    async def alive(self, _: web.Request) -> web.Response:
        """Answer that the process serves, with the name of its worker."""
        return web.json_response({"worker": self.worker.name})


def _answer(value: Any, refused: str) -> web.Response:
    return web.json_response(body=msgspec.json.encode({"value": value, "refused": refused}))


@asynccontextmanager
async def open_row_store(url: str, application: Application, tables: int = 0) -> AsyncIterator[RowStore]:
    """Open the row store of an application.

    Args:
        url: address of the cluster.
        application: its name is the name of the book.
        tables: port of a Cassandra on this machine that keeps the rows; 0 for objects of a store.
    """
    async with boki.connect(url, timeout=TIMEOUT_S) as client:
        log = Log(client.book(f"{application.name}-tables" if tables else application.name))
        if tables:
            async with open_table_row_store(log, application, tables) as data:
                yield data
            return
        store = ObjectRowStore(BokiStore(log, settings=SETTINGS))
        yield store
        await store.close()


@asynccontextmanager
async def open_table_row_store(log: Log, application: Application, port: int) -> AsyncIterator[RowStore]:
    """Open the row store of an application in a Cassandra on this machine."""
    from bokiflow.tables.cassandra_port import (
        CassandraTables,
    )  # needs the extra `cassandra`, which may not be installed

    async def connect() -> CassandraTables:
        return await CassandraTables.connect([HOST], port=port, keyspace=application.name)

    async with await with_retries(connect) as cassandra, Tables(log, cassandra) as tables:
        yield await TableRowStore.opened(tables, application.tables)


@asynccontextmanager
async def serving(service: Service, port: int) -> AsyncIterator[int]:
    """Serve on a port, or a free one for 0, and yield its number."""
    server = web.Application()
    server.add_routes([web.get("/", service.alive), web.post("/{operation}", service.answer)])
    runner = web.AppRunner(server, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, port)
        await site.start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def run(arguments: argparse.Namespace, stop: asyncio.Event) -> None:
    """Run the service until `stop` is set."""
    application = APPLICATIONS[arguments.application]
    async with open_row_store(arguments.url, application, arguments.tables) as data:
        service = Service(application, data)
        async with service.worker, serving(service, arguments.port):
            await stop.wait()


def main() -> None:
    """Run the process."""
    parser = process.parser("examples.apps.service")
    parser.add_argument("--application", choices=sorted(APPLICATIONS), required=True, help="what to serve")
    parser.add_argument("--port", type=int, required=True, help="HTTP port")
    parser.add_argument(
        "--tables", type=int, default=0, metavar="PORT", help="port of a Cassandra that keeps the rows; 0 for a store"
    )
    process.serve(partial(run, parser.parse_args()))


if __name__ == "__main__":
    main()
