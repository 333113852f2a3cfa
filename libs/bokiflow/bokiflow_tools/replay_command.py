"""The command `boki flow replay`: check that changed code fits the history of a workflow before the code is deployed.

Importing this module imports no library (see `commands`); the command imports the user's program.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from boki_cli import exit_codes
from boki_cli.exit_codes import CheckFailed
from boki_cli.options import CommandGroup, Invocation, command, show_facts
from boki_common.errors import UsageError
from boki_common.runtime import process
from bokiflow_tools.command_parts import opened

if TYPE_CHECKING:
    from bokiflow import App

_FILE = click.Path(path_type=Path, dir_okay=False)


def register(group: CommandGroup) -> None:
    """Add the command to the group `flow`."""

    @command(group, "replay", writes=False, client=True, short_help="Replay a history against the code as it is.")
    @click.argument("id", metavar="[WORKFLOW]", required=False)
    @click.option("--book", metavar="B", help="Name of the workflow's book.")
    @click.option(
        "--app", "program", metavar="MODULE:NAME", help="The App, as Python finds it from here: shop.flows:app."
    )
    @click.option("--history", type=_FILE, metavar="FILE", help="A saved history instead of a workflow.")
    @click.option("--save", type=_FILE, metavar="FILE", help="Save the workflow's history to FILE, for a test.")
    def replay(
        invocation: Invocation,
        id: str | None,
        book: str | None,
        program: str | None,
        history: Path | None,
        save: Path | None,
    ) -> int:
        """Replay the history of a workflow against the code as it is here, and print what the code waits for then. No step runs.

        Exit code 1: the code does something else than its history; the error shows both.

        \b
            boki flow replay order-7 --book shop --app shop.flows:app
            boki flow replay order-7 --book shop --save golden/order.json
            boki flow replay --history golden/order.json --app shop.flows:app --json
        """
        if (history is None) == (id is None) or (id is not None and book is None):
            raise click.UsageError("expected a workflow and --book, or --history FILE")
        if program is None and save is None:
            raise click.UsageError("expected --app MODULE:NAME, or --save FILE")
        app = None if program is None else _app(program)
        kept = _exported(invocation, book or "", id or "") if history is None else _read(history)
        if save is not None:
            _write(save, kept)
        if app is None:
            show_facts(invocation, {"saved": str(save)}, f"saved to {save}")
            return exit_codes.OK
        return process.run_command(lambda: _replay(invocation, app, kept))


def _app(program: str) -> App:
    from bokiflow.client.app import named_app

    if "" not in sys.path:
        sys.path.insert(0, "")  # modules of the current folder, as `python -m` finds them
    return named_app(program)


def _exported(invocation: Invocation, book: str, id: str) -> bytes:
    found: list[bytes] = []

    async def work() -> int:
        from bokiflow.client import replayer

        async with opened(invocation, book) as log:
            found.append(await replayer.export(log, id))
        return exit_codes.OK

    process.run_command(work)
    return found[0]


async def _replay(invocation: Invocation, app: App, kept: bytes) -> int:
    from bokiflow import NonDeterminism
    from bokiflow.client import replayer

    try:
        waits = await replayer.replay(app, kept)
    except NonDeterminism as error:
        raise CheckFailed(f"the code does something else: {error}", **error.facts) from error
    text = f"it fits, and waits for: {', '.join(waits)}" if waits else "it fits, and waits for nothing"
    show_facts(invocation, {"fits": True, "waits": waits}, text)
    return exit_codes.OK


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as fault:
        raise UsageError(f"--history: {path} cannot be read: {fault.strerror}") from fault


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as fault:
        raise UsageError(f"--save: {path} cannot be written: {fault.strerror}") from fault
