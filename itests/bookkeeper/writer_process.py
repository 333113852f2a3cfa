"""A writer of ours in a process of its own, to be killed: `python -m itests.bookkeeper.writer_process METADATA COUNT BOOKIE…`.

Makes a ledger on these bookies, appends "ours 0" … "ours COUNT-1", prints the ledger's id once all are acknowledged, and
keeps the ledger open until it is killed.
"""

from __future__ import annotations

import asyncio
import sys

from boki_common.metadata.open import open_store
from itests.bookkeeper.clients import OurClient, Placement


async def main(metadata: str, count: int, *bookies: str) -> None:
    store = open_store(metadata)
    await store.start()
    async with OurClient(store, "v2") as client:
        writer = await client.create(Placement(bookies, bookies[0]), "CRC32C")
        await writer.append([f"ours {number}" for number in range(count)])
        sys.stdout.write(f"{writer.ledger_id}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))
