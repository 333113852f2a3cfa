"""A process of the shop: it handles orders and runs their workflows.

    python -m examples.orders.worker URL --name worker1.1 --slot worker1

The process runs until its standard input closes, and prints nothing.
"""

from __future__ import annotations

import asyncio
from typing import Final

import boki
from bokiflow import Worker
from examples.orders.app import BOOK, LEASE_S, Shop
from examples.process import parser, serve

TIMEOUT_S: Final = 10.0


async def work(url: str, slot: str, stop: asyncio.Event) -> None:
    """Handle orders and run workflows until `stop` is set.

    The process takes the name of its slot in the queue and in the group of workers. So the next process of the slot gets its shards
    and partitions at once; a process with another name would have to wait until their leases expire.
    """
    async with boki.connect(url, timeout=TIMEOUT_S) as client:
        shop = await Shop.open(client.book(BOOK))
        async with (
            Worker(shop.app, shop.log, name=slot, lease_s=LEASE_S) as worker,
            shop.handler(worker.flow, slot),
        ):
            await stop.wait()


def main() -> None:
    """Run the process."""
    options = parser("examples.orders.worker")
    options.add_argument(
        "--slot",
        required=True,
        help="name that this process shares with its predecessors; one process at a time has it",
    )
    arguments = options.parse_args()
    serve(lambda stop: work(arguments.url, arguments.slot, stop))


if __name__ == "__main__":
    main()
