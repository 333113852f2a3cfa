"""`boki flow signal | cancel`: what is done to a workflow.

Importing this module imports no library (see `commands`).
"""

from __future__ import annotations

import click
import msgspec

from boki_cli.options import BOOK, CommandGroup, Invocation, command
from boki_common.errors import UsageError
from bokiflow_tools.command_parts import ID, change


def register(group: CommandGroup) -> None:
    """Adds the commands of this module."""
    for add in (_register_signal, _register_cancel):
        add(group)


def _register_signal(group: CommandGroup) -> None:
    @command(group, "signal", writes=True, client=True, short_help="Send a workflow a value.")
    @ID
    @click.argument("topic")
    @click.argument("value", required=False, default="null", metavar="[JSON]")
    @BOOK
    def signal(invocation: Invocation, id: str, topic: str, value: str, book: str) -> int:
        """Send a workflow a value, which its `recv(TOPIC)` gives it, once. What is over is told nothing.

        \b
            boki flow signal holiday approved '"ann"' --book shop
        """
        try:
            sent = msgspec.json.decode(value)
        except msgspec.DecodeError as fault:
            raise UsageError(f"expected JSON, such as 7 or '\"a text\"', found {value!r:.80}: {fault}") from fault
        return change(invocation, book, id, lambda handle: handle.signal(topic, sent), "sent")


def _register_cancel(group: CommandGroup) -> None:
    @command(group, "cancel", writes=True, client=True, short_help="Ask a workflow to end.")
    @ID
    @BOOK
    @click.option("--reason", default="", metavar="TEXT", help="For whoever reads what happened.")
    def cancel(invocation: Invocation, id: str, book: str, reason: str) -> int:
        """Ask a workflow to end: its code gets CancelledError where it waits, and may clean up. What is over stays as it is.

        \b
            boki flow cancel order-7 --book shop --reason "wrong address"
        """
        return change(invocation, book, id, lambda handle: handle.cancel(reason), "asked to end")
