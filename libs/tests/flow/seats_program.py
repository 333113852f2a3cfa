"""A worker as a process of its own, for tests that kill it: `python -m libs.tests.flow.seats_program URL NAME hangs`, or `… goes`."""

from __future__ import annotations

import asyncio
import sys

import boki
import bokiflow
from bokiflow import App, Worker

LEASE_S = 2.0
BOOK = "seats"


def app_of(*, hangs: bool) -> App:
    """Workflows that use something under a lock. `hangs`: in this process that never ends."""
    app = App("seats")

    @app.step
    async def use(name: str, who: str) -> str:
        if hangs:
            await asyncio.Event().wait()
        return f"inside {name} {who}"

    @app.workflow
    async def sit(name: str) -> int:
        async with bokiflow.lock(name) as number:
            bokiflow.emit("has", number)
            await use(name, bokiflow.workflow_id())
            return number

    return app


async def main(url: str, name: str, how: str) -> None:
    """Works until it is killed."""
    async with (
        boki.connect(url) as client,
        Worker(app_of(hangs=how == "hangs"), client.book(BOOK), name=name, lease_s=LEASE_S),
    ):
        sys.stdout.write("works\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
