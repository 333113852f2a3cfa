"""`--metadata` of the commands that look below the engines, and what stands in for it.

A cluster's metadata store is named by the flag, a settings file or BOKI_METADATA; where none does, an engine that answers at
`--url` names the one it uses, as for `boki status`. So on the machine of `boki dev` nobody has to know where it lies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from boki_cli import exit_codes
from boki_cli.options import DEFAULT_URL, URL_VARIABLE, Invocation, keep
from boki_common.engine.engine_url import split_options
from boki_common.errors import SettingsError, Unreachable
from boki_common.runtime import process
from boki_common.runtime.token_file import token_of

if TYPE_CHECKING:
    from boki_cli.facts.cluster_status import Part
    from boki_cli.roles import Parts, ProcessSettings

ANSWER_S: Final = 2.0
"""How long an engine has to answer."""

_Command = TypeVar("_Command", bound=Callable[..., Any])


def metadata_option(function: _Command) -> _Command:
    """Adds --metadata, which the function gets as `metadata`, and --url, which the `Invocation` has."""
    url = click.option(
        "--url",
        envvar=URL_VARIABLE,
        default=DEFAULT_URL,
        show_default=True,
        show_envvar=True,
        metavar="URL",
        expose_value=False,
        callback=keep("url"),
        help="Engines, one of which names the metadata store.",
    )
    metadata = click.option(
        "--metadata",
        metavar="URI",
        help="Metadata store: sqlite:///absolute/path.db or zk://host:port,host:port/path. Default: BOKI_METADATA, else "
        "the one that an engine at --url names.",
    )
    return metadata(url(function))


def configured_settings(invocation: Invocation, metadata: str | None) -> ProcessSettings:
    """Settings as flags, environment and file say them, for a command that makes no cluster. Raises SettingsError: a setting is
    wrong, or the metadata store is a file that is not there: opening it would make it."""
    from boki_cli import roles
    from boki_cli.facts import cluster_status

    settings = roles.process_settings(
        invocation.config,
        {"metadata": metadata, "token_file": invocation.token_file or split_options(invocation.url).token_file or None},
    )
    if settings.metadata and not cluster_status.is_here(settings.metadata):
        raise SettingsError(
            f"expected a metadata store at {settings.metadata}, found no such file; `boki dev`, `boki init` or the first role "
            "of a cluster makes it"
        )
    return settings


def found_settings(invocation: Invocation, metadata: str | None) -> ProcessSettings:
    """The same, with a metadata store in any case. Asks engines in an event loop of its own. Raises SettingsError: as
    `configured_settings`; InvalidArgument: the URL is wrong; Unreachable: no engine names a store that can be reached from here."""
    from boki_cli.facts import cluster_status

    settings = configured_settings(invocation, metadata)
    if settings.metadata:
        return settings
    found: list[cluster_status.ClusterStatus] = []

    async def ask() -> int:
        found.append(
            await cluster_status.gather(
                invocation.url, None, timeout_s=ANSWER_S, token=await token_of(settings.token_file)
            )
        )
        return exit_codes.OK

    process.run_command(ask)
    (status,) = found
    uri = cluster_status.metadata_nearby(status)
    if uri:
        return dataclasses.replace(settings, metadata=uri)
    why = "; ".join(map(_why_not, status.engines))
    raise Unreachable(
        f"expected --metadata URI (or BOKI_METADATA), or an engine at {invocation.url} that names the metadata store: {why}"
    )


def run_on_metadata(
    invocation: Invocation, metadata: str | None, use: Callable[[Parts, ProcessSettings], Awaitable[None]]
) -> int:
    """Runs `use` in a loop of its own, on the store that `found_settings` finds. Nothing is created in it."""
    from boki_cli import roles

    settings = found_settings(invocation, metadata)

    async def main() -> int:
        async with roles.open_metadata(settings) as parts:
            await use(parts, settings)
        return exit_codes.OK

    return process.run_command(main)


def _why_not(engine: Part) -> str:
    named = engine.status.get("metadata")
    if not engine.up or not named:
        return engine.problem or f"{engine.address} names none"
    return f"{engine.address} names {named}, a file that is not on this machine"
