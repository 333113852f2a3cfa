"""A process of the shop: it handles orders and runs their workflows, until standard input closes or somebody kills it."""

from __future__ import annotations

import asyncio
from typing import Final

import boki
from bokiflow import Worker
from examples.orders.app import BOOK, LEASE_S, Shop
from examples.process import parser, serve

TIMEOUT_S: Final = 10.0


async def work(url: str, slot: str, stop: asyncio.Event) -> None:
    """Handle orders and run workflows until `stop`.

    The process has the name of its place in the queue and in the group of workers: so the next process of the place has its shards and
    partitions at once, where one of another name waits until the lease of this one ran out.
    """
    async with boki.connect(url, timeout=TIMEOUT_S) as client:
        shop = await Shop.open(client.book(BOOK))
        async with (
            Worker(shop.app, shop.log, name=slot, lease_s=LEASE_S) as worker,
            shop.handler(worker.flow, slot),
        ):
            await stop.wait()


def main() -> None:
    """The entry point of the process."""
    options = parser("examples.orders.worker")
    options.add_argument("--slot", required=True, help="of which it is the process; no other process has it at a time")
    arguments = options.parse_args()
    serve(lambda stop: work(arguments.url, arguments.slot, stop))


if __name__ == "__main__":
    main()
