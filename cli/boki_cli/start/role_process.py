"""What every process of a role has: options, the line that it announces, its logs, and an end with who started it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from boki_cli.exit_codes import RoleFailed
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


async def until_failed(failed: Mapping[str, Awaitable[object]], stop: asyncio.Event) -> None:
    """Return when `stop` is set.

    Args:
        failed: by the role's name, what ends only with the role: it raises the error, or gives it.

    Raises:
        RoleFailed: a role ended, however it did: by an error or a group of them, cancelled by itself, or without saying why.
    """
    ending = {name: asyncio.ensure_future(one) for name, one in failed.items()}
    waiting: asyncio.Future[Any] = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([waiting, *ending.values()], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    for name, one in ending.items():
        if one.done():
            raise _role_failed(name, one)


def _role_failed(name: str, ended: asyncio.Future[object]) -> RoleFailed:
    found = None if ended.cancelled() else ended.exception() or ended.result()
    if not isinstance(found, BaseException):
        why = "was cancelled" if ended.cancelled() else "ended without an error"
        return RoleFailed(f"the {name} {why}: a fault of boki; start it again", role=name, errors=[])
    errors = list(_leaves(found))
    reasons = "; ".join(f"{type(error).__name__}: {error}" for error in errors)
    failed = RoleFailed(f"the {name} failed: {reasons}", role=name, errors=[type(error).__name__ for error in errors])
    failed.__cause__ = found
    return failed


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors that a group holds, groups in it too; of an error that is none, itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


@contextmanager
def ending_as_the_role_failed() -> Iterator[None]:
    """Raise the RoleFailed of the block, although closing the rest failed too, or a group of errors carries it."""
    try:
        yield
    except RoleFailed:
        raise
    except BaseException as error:
        found = _behind(error)
        if found is not None:
            raise found from error
        raise


def _behind(error: BaseException | None) -> RoleFailed | None:
    """The RoleFailed among an error, what it holds, and what was being handled when it was raised."""
    seen: set[int] = set()
    left = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        if isinstance(one, RoleFailed):
            return one
        seen.add(id(one))
        left += [one.__cause__, one.__context__, *(one.exceptions if isinstance(one, BaseExceptionGroup) else ())]
    return None


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
