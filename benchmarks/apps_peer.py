"""A process that answers requests of an application through one of the two ends, over the same HTTP as `examples.apps.service`.

    python -m benchmarks.apps_peer beldi --application hotel --port 8001 --tables CQL-PORT
    python -m benchmarks.apps_peer plain --application hotel --port 8001 --url URL

`plain` calls functions directly, over a `BokiStore`: no intents, no steps; what is interrupted stays so.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from aiohttp import web
from cassandra import DriverException
from cassandra.cluster import NoHostAvailable

import boki
from benchmarks.apps_beldi import Beldi
from benchmarks.apps_functions import FUNCTIONS, Change, Function
from boki_common.errors import BokiError
from boki_common.runtime.process import loop_factory
from bokilib.records.codec import JsonObject
from bokistore import BokiStore, Transaction
from examples.apps.service import RequestBody, serving
from examples.apps.service import Service as BokiService

Run = Callable[[Function, str, Sequence[Any]], Awaitable[Any]]


class Plain:
    """A call of a function that nobody notes. See `apps_functions.Access`."""

    def __init__(self, store: BokiStore, id: str) -> None:
        self.id: Final = id
        self._store: Final = store

    async def call(self, function: Function, *args: Any) -> Any:
        """See `Access`."""
        return await function(self, *args)

    async def read(self, names: Sequence[str]) -> list[JsonObject | None]:
        """See `Access`."""
        return await self._store.values(names)

    async def change(self, changes: Mapping[str, Change]) -> None:
        """See `Access`: one transaction."""

        async def body(tx: Transaction) -> None:
            for name, row in zip(changes, await tx.values(list(changes)), strict=True):
                tx[name].set("", changes[name](row))

        await self._store.transact(body)


class Service(BokiService):
    """Answers requests with functions."""

    def __init__(self, application: str, run: Run) -> None:  # it has no worker
        self._functions: Final = FUNCTIONS[application]
        self._run: Final = run

    async def answer(self, request: web.Request) -> web.Response:
        """How one request ended."""
        asked = msgspec.json.decode(await request.read(), type=RequestBody)
        value, refused = None, ""
        try:
            value = await self._run(self._functions[request.match_info["operation"]], asked.id, asked.args)
        except BokiError as error:
            refused = type(error).__name__
        except (
            DriverException,
            NoHostAvailable,
        ) as error:  # the same id is asked again, and goes on from what was logged
            sys.stderr.write(f"{asked.id}: {error!r}\n")
            return web.json_response({"error": str(error)}, status=503)
        return web.json_response(body=msgspec.json.encode({"value": value, "refused": refused}))

    async def alive(self, _: web.Request) -> web.Response:
        """It serves."""
        return web.json_response({})


def book_of(application: str) -> str:
    """Of the rows that nothing else has."""
    return f"{application}-plain"


async def run(arguments: argparse.Namespace) -> None:
    """Serves until standard input closes."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stop.set)
    if arguments.kind == "beldi":
        async with (
            await Beldi.connect(arguments.tables) as beldi,
            serving(Service(arguments.application, beldi.run), arguments.port),
        ):
            await stop.wait()
        return
    async with boki.connect(arguments.url) as client:
        store = BokiStore(client.book(book_of(arguments.application)))

        async def plainly(function: Function, id: str, args: Sequence[Any]) -> Any:
            return await function(Plain(store, id), *args)

        async with serving(Service(arguments.application, plainly), arguments.port):
            await stop.wait()
        await store.close()


def main() -> None:
    """The entry point of the process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.apps_peer")
    parser.add_argument("kind", choices=("beldi", "plain"))
    parser.add_argument("--application", choices=sorted(FUNCTIONS), required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tables", type=int, default=0)
    parser.add_argument("--url", default="")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
