"""What every process of a role has: options, the line that it announces, its logs, and an end with who started it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from boki_cli.options import Invocation, flush
from boki_common import logs

if TYPE_CHECKING:
    from boki_cli.roles import ProcessSettings

METADATA = click.option(
    "--metadata", metavar="URI", help="Metadata store: sqlite:///absolute/path.db or zk://host:port,host:port/path."
)
METRICS = click.option(
    "--metrics", metavar="HOST:PORT", help="Serve /metrics, /healthz and /readyz there over HTTP; default: nowhere."
)
INSECURE = click.option(
    "--insecure", is_flag=True, help="Listen where other machines reach it although nobody is asked for a token."
)
STOP_WITH_STDIN = click.option(
    "--stop-with-stdin", is_flag=True, hidden=True, help="End when standard input closes: with whoever started this."
)


def announce_role(
    invocation: Invocation, kind: str, addresses: Sequence[str], page: str, admin: str = "", gateway: str = ""
) -> None:
    """One line: where the role is, and where its metrics, its administration and its gateway are if anywhere."""
    if invocation.json:
        ready = {"role": kind, "pid": os.getpid(), "addresses": list(addresses)}
        also = (("metrics", page), ("admin", admin), ("gateway", gateway))
        invocation.emit(ready | {name: at for name, at in also if at})
    else:
        pages = (f", metrics on {page_url(page)}" if page else "") + (f", admin on http://{admin}" if admin else "")
        click.echo(f"{kind} listens on {', '.join(addresses)}{pages}")
    flush()


def page_url(page: str) -> str:
    """Where the metrics are, for a person."""
    return f"http://{page}/metrics"


def begin_logs(invocation: Invocation, settings: ProcessSettings) -> None:
    """Logs as the settings say, or everything with --debug."""
    logs.configure(level="debug" if invocation.debug else settings.log_level, json=settings.log_json)


async def until_failed(failed: Iterable[Awaitable[Any]], stop: asyncio.Event) -> None:
    """Returns when `stop` is set; raises what one of the others failed with."""
    ending = [asyncio.ensure_future(one) for one in failed]
    waiting: asyncio.Future[Any] = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([waiting, *ending], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    for one in ending:
        if one.done():
            await one


def watch_stdin(stop: asyncio.Event, *, wanted: bool) -> None:
    """Sets `stop` when whoever holds the other end of standard input is gone."""
    if not wanted:
        return
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()

    def readable() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            stop.set()

    loop.add_reader(descriptor, readable)
