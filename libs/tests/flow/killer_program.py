"""A worker as a process of its own, one of whose workflows takes it down: `python -m libs.tests.flow.killer_program URL NAME`."""

from __future__ import annotations

import asyncio
import os
import sys
import time

import boki
from bokiflow import App, Worker

LEASE_S = 1.0
STEP_S = 0.5
BOOK = "shop"

app = App("shop")


@app.step
async def ends_its_process() -> None:
    await asyncio.sleep(0.05)
    os._exit(9)


@app.step
async def blocks_its_loop() -> None:
    await asyncio.sleep(0.05)
    time.sleep(3 * LEASE_S)
    os._exit(9)


@app.step
async def slow() -> str:
    await asyncio.sleep(STEP_S)
    return "done"


@app.workflow
async def exits() -> None:
    await ends_its_process()


@app.workflow
async def blocks() -> None:
    await blocks_its_loop()


@app.workflow
async def healthy() -> str:
    return await slow()


async def main(url: str, name: str) -> None:
    """Works until a step ends it."""
    async with boki.connect(url) as client, Worker(app, client.book(BOOK), name=name, lease_s=LEASE_S):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
