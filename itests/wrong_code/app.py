"""The program of a wrong-code run: good workflows, and workflows of each kind of bad code, in an old and a new version.

| kind | what its code does | how it ends |
|---|---|---|
| `raises`, `exits`, `interrupts` | a step raises ValueError, SystemExit, KeyboardInterrupt | failed |
| `stops`, `foreign_cancel`, `group` | a step raises StopIteration, CancelledError, an ExceptionGroup | failed |
| `polls`, `loops` | `sleep(0)` without end; a pure loop | blocked, WorkflowStuck |
| `blocks` | `time.sleep` | the same, or done if it was not noticed in time |
| `changed` | another step in the new version than in the old one | done, or blocked, NonDeterminism |
| `ghost` | no program has it | blocked, NotRegistered |
| `hangs` | a step that never ends | running, until it is cancelled |
| `good`, `new_only` | right; only the new version has `new_only` | done |

A process runs a worker until its standard input closes.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Final

import boki
import bokiflow
from bokiflow import App, Worker
from examples.process import parser, serve

BOOK: Final = "wrong-code"
LEASE_S: Final = 4.0
FAILS: Final = {
    "raises": "ValueError: no money",
    "exits": "SystemExit",
    "interrupts": "KeyboardInterrupt",
    "stops": "StopIteration",
    "foreign_cancel": "CancelledError, and nobody had cancelled it",
    "group": "two at once",
}
"""What `boki flow show` says of each kind that fails."""
STUCK: Final = ("polls", "blocks", "loops")
BAD: Final = (*FAILS, *STUCK, "changed", "ghost", "hangs")


def program(code: str, block_s: float = 0.0) -> App:
    """Return the code of a version.

    Args:
        code: "old", "new", or "all": for a program that starts workflows and runs none. block_s: seconds that `blocks` blocks.
    """
    app = App("shop")
    _good(app, code)
    _failing(app)
    _stuck(app, block_s)
    _changed(app, code)
    return app


def _good(app: App, code: str) -> None:
    @app.step
    async def add(a: int, b: int) -> int:
        return a + b

    @app.step
    def double(a: int) -> int:
        return 2 * a

    @app.workflow
    async def good(number: int) -> int:
        one, two = await asyncio.gather(add(number, 1), double.aio(number))
        await asyncio.sleep(0.05)
        return await add(one, two)

    if code != "old":

        @app.workflow
        async def new_only(number: int) -> int:
            return await add(number, number)

    if code == "all":

        @app.workflow
        async def ghost(number: int) -> int:
            return number


def _failing(app: App) -> None:
    def raising(name: str, body: Callable[[], object]) -> None:
        step = app.step(name=f"{name}_step")(body)

        async def flow(number: int) -> None:
            await step.aio()

        app.workflow(name=name)(flow)

    def raises() -> None:
        raise ValueError("no money")

    def interrupts() -> None:
        raise KeyboardInterrupt

    def group() -> None:
        raise ExceptionGroup("two at once", [ValueError("first"), OSError("second")])

    raising("raises", raises)
    raising("exits", lambda: sys.exit(3))
    raising("interrupts", interrupts)
    raising("stops", lambda: next(iter([])))
    raising("group", group)

    @app.step
    async def cancels_itself() -> None:
        raise asyncio.CancelledError

    @app.workflow
    async def foreign_cancel(number: int) -> None:
        await cancels_itself()

    @app.step
    async def never_ends() -> None:
        await asyncio.Event().wait()

    @app.workflow
    async def hangs(number: int) -> None:
        await never_ends()


def _stuck(app: App, block_s: float) -> None:
    @app.workflow
    async def polls(number: int) -> None:
        while True:
            await asyncio.sleep(0)

    @app.workflow
    async def blocks(number: int) -> None:
        time.sleep(block_s)

    @app.workflow
    async def loops(number: int) -> None:
        while True:
            pass


def _changed(app: App, code: str) -> None:
    async def body(number: int) -> str:
        return code

    step = app.step(name=f"{code}_step")(body)

    @app.workflow
    async def changed(number: int) -> str:
        done = await step(number)
        await bokiflow.recv("go")
        return done


def main() -> None:
    made = parser(__name__)
    made.add_argument("--code", choices=("old", "new"), required=True)
    made.add_argument("--stuck-after", type=float, required=True)
    made.add_argument("--block", type=float, required=True)
    asked = made.parse_args()

    async def work(stop: asyncio.Event) -> None:
        app = program(asked.code, asked.block)
        options = {"name": asked.name, "lease_s": LEASE_S, "stuck_after_s": asked.stuck_after}
        async with boki.connect(asked.url) as client, Worker(app, client.book(BOOK), **options) as worker:
            await stop.wait()
            await worker.drain(finish_s=2)

    serve(work)


if __name__ == "__main__":
    main()
