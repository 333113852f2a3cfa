"""`boki dev`, `boki init` and one command per role: what runs.

A role prints one line on standard output once it serves, then nothing; it logs to standard error. It ends cleanly on
SIGTERM or Ctrl-C, and with an error, its reason and its exit code when the role fails.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from boki_cli import exit_codes
from boki_cli.number_types import Whole
from boki_cli.options import Invocation, command, flush
from boki_cli.start.listening import guard
from boki_cli.start.role_process import (
    INSECURE,
    METADATA,
    METRICS,
    STOP_WITH_STDIN,
    announce_role,
    begin_logs,
    ending_as_the_role_failed,
    page_url,
    until_failed,
    watch_stdin,
)
from boki_common.runtime import process

if TYPE_CHECKING:
    from boki_cli.roles import Kind, ProcessSettings, RunningRole


class DataFolder(click.Path):
    """A folder that has a name: an empty one would be the current folder, where nobody expects it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value):
            self.fail("expected the path of a folder, found nothing; for the current folder say .", param, ctx)
        return super().convert(value, param, ctx)


_DATA: Final = DataFolder(path_type=Path, file_okay=False)
_ADMIN_PORT = click.option(
    "--admin-port",
    type=Whole(-1, 65_535),
    metavar="PORT",
    help="Serve health, ledgers, settings and read-only mode over HTTP to this machine; 0: a free port; default: nowhere.",
)
_SALVAGE = click.option(
    "--salvage",
    is_flag=True,
    help="Start on a damaged directory with what can be read; the rest is unknown until it is repaired.",
)
_REPLACE_LOST_DISK = click.option(
    "--replace-lost-disk",
    is_flag=True,
    help="Start on an empty directory as a new bookie, and retire the one whose disk is gone.",
)
_LOGS = click.option(
    "--logs",
    type=Whole(1, 64),
    help="At least so many physical logs; what a new one gets of the slots is an even share. Default: 1.",
)


def _listen(kind: Kind) -> Callable[[Callable[..., int]], Callable[..., int]]:
    from boki_cli.roles import DEFAULT_LISTEN

    taken = "" if kind == "engine" else ", or a free port if that is taken"
    return click.option(
        "--listen",
        multiple=True,
        metavar="ADDRESS",
        help=f"host:port (port 0: a free one) or unix:///path. Default: {DEFAULT_LISTEN[kind]}{taken}.",
    )


class _LogOrAny(click.ParamType[int]):
    """The number of a log, or `any`."""

    name = "LOG"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if value == "any":
            return -1
        if not value.isdecimal():
            self.fail(f"expected the number of a log or any, found {value!r}", param, ctx)
        return int(value)


_ONLY_LOG = click.option("--log", type=_LogOrAny(), metavar="LOG", help="The only log to stand by for; default: any.")


@command(None, "dev", writes=False, speaks=True, short_help="Run everything in one process, on one directory.")
@click.option("--data", type=_DATA, metavar="DIR", help="Default: ./.boki.")
@click.option("--bookies", type=Whole(1, 9), default=1, show_default=True, help="3 rehearse replication.")
@_LOGS
@click.option("--listen", multiple=True, metavar="ADDRESS", help="Default: 127.0.0.1:7040; port 0 is a free one.")
@click.option(
    "--gateway-port",
    type=Whole(-1, 65_535),
    metavar="PORT",
    help="Of the status page and the HTTP API; 0: a free one; -1: none; default: 7080, or a free one if that is taken.",
)
@_SALVAGE
@_REPLACE_LOST_DISK
@METRICS
@INSECURE
@STOP_WITH_STDIN
def dev(
    invocation: Invocation,
    data: Path | None,
    bookies: int,
    logs: int | None,
    listen: tuple[str, ...],
    gateway_port: int | None,
    salvage: bool,
    replace_lost_disk: bool,
    metrics: str | None,
    insecure: bool,
    stop_with_stdin: bool,
) -> int:
    """Run a bookie, a sequencer, an engine, a controller and a gateway in one process, without anything else to install.

    The data is in DIR and survives a restart, kill -9 and power loss of a disk that honours flush. With one bookie
    it does not survive the loss of the disk. Ctrl-C ends it.

    \b
        boki dev
        boki dev --data /tmp/try --bookies 3 --listen 127.0.0.1:0
    """
    from boki_cli.roles import process_settings
    from boki_cli.start import dev as all_roles

    flags = {
        "data": data,
        "logs": logs,
        "listen": listen or None,
        "metrics_listen": metrics,
        "gateway.listen": None if gateway_port is None else "",  # the flag wins over an address in the settings
        "gateway.port": gateway_port,
        "bookie.salvage": salvage or None,
        "bookie.replace_lost_disk": replace_lost_disk or None,
        "token_file": invocation.token_file,
        "insecure": insecure or None,
    }
    chosen = process_settings(invocation.config, flags)  # Replication follows the number of bookies, beneath these.
    beneath = _unless_configured(chosen, all_roles.copies(bookies))
    flags["metadata"] = all_roles.metadata_address(chosen.data)
    settings = process_settings(invocation.config, flags | beneath)
    started = max(bookies, all_roles.bookies_there(settings.data))
    new = all_roles.new_bookies(settings.data, started)
    begin_logs(invocation, settings)
    announce = _announce_dev(invocation, settings, bookies)

    async def main(stop: asyncio.Event) -> int:
        watch_stdin(stop, wanted=stop_with_stdin)
        await guard(settings, all_roles.listening(settings))
        await all_roles.check_addresses(settings)
        await all_roles.check_space(settings, new=new)
        await all_roles.serve(settings, bookies=started, logs=settings.logs, announce=announce, stop=stop)
        return exit_codes.OK

    process.tune_memory()
    return process.run(main)


def _announce_dev(
    invocation: Invocation, settings: ProcessSettings, bookies: int
) -> Callable[[Sequence[str], str, str], None]:
    """Says once where everything is."""
    from boki_cli.start import dev as all_roles

    def announce(addresses: Sequence[str], page: str, gateway: str) -> None:
        if invocation.json:
            announce_role(invocation, "dev", addresses, page, gateway=gateway)
            return
        click.echo(f"boki dev listens on {', '.join(map(_url, addresses))}, data in {settings.data}, pid {os.getpid()}")
        click.echo(all_roles.what_it_survives(bookies))
        if gateway:
            click.echo(f"status page and HTTP API are on http://{gateway}/")
        if page:
            click.echo(f"metrics are on {page_url(page)}")
        flush()

    return announce


def _unless_configured(chosen: ProcessSettings, defaults: dict[str, object]) -> dict[str, object]:
    """Those defaults whose settings the user left as they come."""
    from boki_cli.roles import ProcessSettings

    plain = ProcessSettings()

    def value(settings: Any, key: str) -> object:
        for name in key.split("."):
            settings = getattr(settings, name)
        return settings

    return {key: default for key, default in defaults.items() if value(chosen, key) == value(plain, key)}


@command(None, "init", writes=True, short_help="Create a cluster's metadata.")
@METADATA
@_LOGS
def init(invocation: Invocation, metadata: str | None, logs: int | None) -> int:
    """Create what a cluster keeps in its metadata store, unless it is there.

    Optional: the first role that finds nothing there does the same. It shows early whether the store answers.
    """
    from boki_cli import roles
    from boki_metalog.control.log_changes import ensure_logs

    flags = {"metadata": metadata, "logs": logs, "token_file": invocation.token_file, "metadata_wait_s": 0.0}
    settings = roles.process_settings(invocation.config, flags)

    async def main() -> int:
        async with roles.open_parts(settings) as parts:
            await ensure_logs(parts.metadata, settings.logs)
        if invocation.json:
            invocation.emit({"metadata": settings.metadata, "ready": True})
        else:
            click.echo(f"{settings.metadata} holds a cluster now; start bookies, a sequencer and an engine on it")
        return exit_codes.OK

    return process.run_command(main)


_SETTINGS: Final = {
    "metrics": "metrics_listen",
    "salvage": "bookie.salvage",
    "replace_lost_disk": "bookie.replace_lost_disk",
    "admin_port": "bookie.admin_port",
    "log": "sequencer.log",
}
"""Options of roles that are not called as what they set."""


def _role(kind: Kind, what: str, *, data: bool = False) -> click.Command:
    def role(invocation: Invocation, stop_with_stdin: bool, **given: Any) -> int:
        flags = {
            _SETTINGS.get(name, name): None if value is False or value == () else value for name, value in given.items()
        }
        flags["token_file"] = invocation.token_file
        return _run_role(invocation, kind, flags, stop_with_stdin=stop_with_stdin)

    role.__doc__ = (
        f"{what}\n\nPrints one line when it serves, then runs until SIGTERM or Ctrl-C; it logs to standard error."
    )
    options: list[Callable[..., Any]] = [METADATA, _listen(kind), METRICS, INSECURE, STOP_WITH_STDIN]
    if data:
        options[1:1] = [
            click.option("--data", type=_DATA, metavar="DIR", help="Where it stores; default: ./.boki."),
            click.option(
                "--more-data",
                multiple=True,
                type=DataFolder(file_okay=False),
                metavar="DIR",
                help="A further data directory, on another disk; may be repeated, always in the same order.",
            ),
            _SALVAGE,
            _REPLACE_LOST_DISK,
            _ADMIN_PORT,
        ]
    if kind == "sequencer":
        options.append(_ONLY_LOG)
    for option in reversed(options):
        role = option(role)
    return command(None, kind, writes=False, short_help=f"Run one {kind}.")(role)


bookie: Final = _role("bookie", "Stores ledger entries in a directory.", data=True)
sequencer: Final = _role("sequencer", "Orders a log: the primary of its current term, or a standby for any log.")
engine: Final = _role("engine", "Serves books to programs: appends, index, reads.")
controller: Final = _role(
    "controller", "Keeps terms, slots and spare ledgers in order: the leader of its group, or a standby."
)


def _run_role(invocation: Invocation, kind: Kind, flags: Mapping[str, object], *, stop_with_stdin: bool) -> int:
    from boki_cli.roles import process_settings

    settings = process_settings(invocation.config, flags)
    begin_logs(invocation, settings)

    def announce(role: RunningRole, page: str) -> None:
        announce_role(invocation, kind, role.addresses, page, role.admin)
        process.freeze_garbage()

    async def main(stop: asyncio.Event) -> int:
        watch_stdin(stop, wanted=stop_with_stdin)
        await serve(kind, settings, announce=announce, stop=stop)
        return exit_codes.OK

    process.tune_memory()
    return process.run(main)


async def serve(
    kind: Kind, settings: ProcessSettings, *, announce: Callable[[RunningRole, str], None], stop: asyncio.Event
) -> None:
    """Run one role until `stop`.

    Args:
        announce: called once it serves, with the address of its metrics page, or "".

    Raises:
        RoleFailed: it ended by itself. What keeps it from starting.
    """
    from boki_cli import roles

    await guard(settings, roles.listen_addresses(kind, settings))
    starting = (f"the {kind} is not up yet",)
    found: list[roles.RunningRole] = []

    def faults() -> Sequence[str]:
        return found[0].faults() if found else starting

    def unready() -> Sequence[str]:
        return found[0].unready() if found else starting

    with ending_as_the_role_failed():
        async with (
            roles.open_parts(settings) as parts,
            roles.metrics_page(parts.metrics, settings, token=parts.token, faults=faults, unready=unready) as page,
            roles.running(kind, parts, settings) as role,
            roles.registered(kind, parts, settings, role),
        ):
            found.append(role)
            announce(role, page)
            await until_failed({kind: role.failed}, stop)


def _url(address: str) -> str:
    return address if address.startswith("unix://") else f"boki://{address}"
