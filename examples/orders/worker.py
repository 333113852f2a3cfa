"""A process of the shop: it handles orders and runs their workflows, until standard input closes or somebody kills it."""

from __future__ import annotations

import asyncio
from typing import Final

import boki
from bokiflow import Worker
from examples.orders.app import LEASE_S, Shop
from examples.process import parser, serve

BOOK: Final = "shop"
TIMEOUT_S: Final = 10.0


async def work(url: str, name: str, stop: asyncio.Event) -> None:
    """Until `stop`."""
    async with boki.connect(url, timeout=TIMEOUT_S) as client:
        shop = await Shop.open(client.book(BOOK))
        async with (
            Worker(shop.app, shop.log, name=name, lease_s=LEASE_S) as worker,
            shop.handler(worker.flow, name),
        ):
            await stop.wait()


def main() -> None:
    """The entry point of the process."""
    arguments = parser("examples.orders.worker").parse_args()
    serve(lambda stop: work(arguments.url, arguments.name, stop))


if __name__ == "__main__":
    main()
