"""`boki gateway`: LogBooks over HTTP, and the status page.

It needs a cluster that is up: it finds engines as all clients do (`--url`), and the rest through the metadata store that an
engine names, or `--metadata`. With `--metadata` and without a URL it finds engines there too. It holds no state: start as many as
there should be. `boki dev` runs one in its process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

from boki_cli import exit_codes
from boki_cli.clients import engine_answers
from boki_cli.number_types import Whole
from boki_cli.options import Invocation, command
from boki_cli.start.listening import guard
from boki_cli.start.role_process import INSECURE, METADATA, STOP_WITH_STDIN, announce_role, begin_logs, watch_stdin
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.engine.engine_url import split_options, with_token_file
from boki_common.errors import MetadataError, SettingsError, Unreachable
from boki_common.log_pace import LogPace
from boki_common.logs import get_logger
from boki_common.net.connection import Address
from boki_common.runtime import process
from boki_common.runtime.token_file import kept_current, token_of

if TYPE_CHECKING:
    from boki_cli.roles import ProcessSettings
    from boki_common.metadata.store import MetadataStore
    from boki_common.metrics import Metrics

HOST: Final = "127.0.0.1"
LOOK_S: Final = 1.0
"""How often the metadata store is looked at while it lists no engine."""

_log = get_logger("gateway")


@command(None, "gateway", writes=False, client=True, short_help="Serve books over HTTP, and a status page.")
@click.option("--listen", metavar="HOST:PORT", help="Default: 127.0.0.1 and --port.")
@click.option("--port", type=Whole(0, 65_535), metavar="PORT", help="On this machine; 0: a free one; default: 7080.")
@INSECURE
@METADATA
@STOP_WITH_STDIN
def gateway(
    invocation: Invocation,
    listen: str | None,
    port: int | None,
    insecure: bool,
    metadata: str | None,
    stop_with_stdin: bool,
) -> int:
    """Serve books over HTTP and JSON for programs in any language, a status page at / and the API at /reference.

    Prints one line when it serves, then runs until SIGTERM or Ctrl-C; it logs to standard error. It waits until an engine answers.

    \b
        boki gateway
        curl --json '{"text": "two apples"}' http://127.0.0.1:7080/v1/books/orders/records
    """
    from boki_cli import roles

    if listen is not None and port is not None:
        raise click.UsageError("expected --listen HOST:PORT or --port PORT, found both")
    flags = {
        "metadata": metadata,
        "gateway.listen": "" if listen is None and port is not None else listen,
        "gateway.port": port,
        "token_file": invocation.token_file,
        "insecure": insecure or None,
    }
    settings = roles.process_settings(invocation.config, flags)
    address = address_of(settings)
    begin_logs(invocation, settings)
    if settings.metadata and click.get_current_context().get_parameter_source("url") is ParameterSource.DEFAULT:
        invocation.url = ""  # engines are found in the metadata store
    return process.run(lambda stop: _run(invocation, settings, address, stop, stop_with_stdin=stop_with_stdin))


def address_of(settings: ProcessSettings) -> Address:
    """Where a gateway listens, as its settings say. Raises SettingsError."""
    if settings.gateway.listen:
        return listen_address(settings.gateway.listen)
    return Address(HOST, max(settings.gateway.port, 0))


def listen_address(text: str) -> Address:
    """The address of `--listen`. Raises SettingsError: browsers speak TCP."""
    address = Address.parse(text)
    if address.path:
        raise SettingsError(f"expected --listen host:port, found {text}; browsers speak TCP")
    return address


async def _run(
    invocation: Invocation, settings: ProcessSettings, address: Address, stop: asyncio.Event, *, stop_with_stdin: bool
) -> int:
    from boki_cli import roles
    from boki_common.metrics import Metrics

    watch_stdin(stop, wanted=stop_with_stdin)
    await guard(settings, [address])
    token = await token_of(settings.token_file)
    metrics = Metrics()
    waits = ["no engine answered yet"]
    async with (
        kept_current(settings.token_file, token),
        roles.metrics_page(metrics, settings, token=token, faults=tuple, unready=lambda: waits) as page,
    ):
        found = invocation.url or await _listed_engines(settings, stop)
        url = with_token_file(split_options(found).engines, settings.token_file) if settings.token_file else found
        while found and await engine_answers(url, settings.gateway.call_timeout_s, stop):
            try:
                async with running_gateway(url, settings, metrics, address=address, token=token) as where:
                    waits.clear()
                    announce_role(invocation, "gateway", [where], page)
                    process.freeze_garbage()
                    await stop.wait()
                break
            except Unreachable as error:  # it went away between two calls
                _log.info("waiting for an engine", url=url, error=error)
    return exit_codes.OK


async def _listed_engines(settings: ProcessSettings, stop: asyncio.Event) -> str:
    """Return the URL of the engines that the metadata store lists, once there are some; "" when `stop` was set before.

    Raises:
        SettingsError: what the settings name is not there, or no metadata store.
    """
    from boki_cli import roles
    from boki_common.metadata.membership import members
    from boki_metalog.terms.index_slots import ENGINE_ROLE, engine_members

    with LogPace(_log.info, "waiting for an engine in the metadata store") as waits:
        while not stop.is_set():
            try:
                async with roles.open_metadata(settings) as parts:
                    engines = engine_members(await members(parts.metadata, ENGINE_ROLE))
                if url := url_of([address for engine in engines for address in engine.addresses]):
                    return url
                waits.say(metadata=settings.metadata)
            except MetadataError as error:
                waits.say(metadata=settings.metadata, error=error)
            try:
                async with asyncio.timeout(LOOK_S):
                    await stop.wait()
            except TimeoutError:
                pass  # look again
    return ""


def url_of(addresses: Sequence[str]) -> str:
    """Return the URL of engines at some addresses: all that are reached over TCP, else the first Unix socket; "" for none."""
    over_tcp = [address for address in addresses if not address.startswith("unix://")]
    return f"boki://{','.join(over_tcp)}" if over_tcp else next(iter(addresses), "")


@asynccontextmanager
async def running_gateway(
    url: str,
    settings: ProcessSettings,
    metrics: Metrics,
    *,
    address: Address,
    store: MetadataStore | None = None,
    token: ClusterToken = NO_TOKEN,
) -> AsyncIterator[str]:
    """A gateway to the cluster of `url`. Yields where it listens.

    Args:
        url: of engines, as `boki.connect` takes it.
        address: where to listen; port 0 is a free one.
        store: the cluster's metadata; by default what the settings or an engine name.
        token: of the cluster: requests have to show it.

    Raises:
        SettingsError: cannot listen there, or what the settings name is no cluster's metadata. Unreachable: no engine answers.
    """
    import boki
    from boki_cli.facts.gateway_facts import AskedCluster
    from boki_gateway.pages.library_pages import installed
    from boki_gateway.server import Gateway  # a web server, which roles without one need no memory for

    facts = AskedCluster(url, settings, store=store, token=token)
    try:
        async with boki.connect(
            url, timeout=settings.gateway.call_timeout_s, token_file=settings.token_file or None
        ) as client:
            await facts.check()
            gateway = Gateway(
                client,
                facts,
                settings.gateway,
                metrics,
                address=address,
                allowed_hosts=settings.allowed_hosts,
                token=token,
                pages=await asyncio.to_thread(installed),
            )
            await gateway.listen()
            try:
                yield str(gateway.address)
            finally:
                await gateway.close()
    finally:
        await facts.close()
