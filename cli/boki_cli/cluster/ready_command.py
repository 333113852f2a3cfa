"""`boki ready`: whether the role of this machine is of use, for supervisors that start a command to find out.

It asks `/readyz` of the page that the role's own settings name (`metrics_listen`), and shows the cluster token that they name: what
supervisors that ask over HTTP themselves cannot. In a container the settings are the environment's, so `boki ready` needs no option.
"""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING, Final

import click
import msgspec

from boki_cli import exit_codes
from boki_cli.options import Invocation, command
from boki_common.advertised import is_every_address
from boki_common.errors import SettingsError, Unreachable
from boki_common.net.connection import Address
from boki_common.runtime.token_file import read_token

if TYPE_CHECKING:
    from boki_cli.roles import ProcessSettings

TIMEOUT_S: Final = 3.0
HERE: Final = "127.0.0.1"


@command(None, "ready", writes=False, speaks=True, short_help="Tell whether the role of this machine is of use.")
@click.option("--metrics", metavar="HOST:PORT", help="Its page; default: as BOKI_METRICS_LISTEN or --config say.")
def ready(invocation: Invocation, metrics: str | None) -> int:
    """Tell whether the role that runs with the same settings is of use: exit code 0, or 1 and why not.

    An engine is once its index has caught up, a sequencer when it orders a log or stands by, a bookie while it takes writes,
    a gateway once an engine answered.

    \b
        BOKI_METRICS_LISTEN=127.0.0.1:7079 boki ready
    """
    from boki_cli.roles import process_settings

    settings = process_settings(invocation.config, {"metrics_listen": metrics, "token_file": invocation.token_file})
    status, body = asked(page_of(settings), read_token(settings.token_file).shown or "")
    ready_now = status == http.client.OK
    if invocation.json:
        invocation.emit({"ready": ready_now, "said": body})
    else:
        click.echo(body)
    return exit_codes.OK if ready_now else exit_codes.CHECK_FAILED


def page_of(settings: ProcessSettings) -> Address:
    """Where the page is asked. Raises SettingsError: the settings name none."""
    if not settings.metrics_listen:
        raise SettingsError(
            "expected the address of the role's page, found none: say --metrics HOST:PORT, or set BOKI_METRICS_LISTEN for both"
        )
    found = Address.parse(settings.metrics_listen)
    return Address(HERE, found.port) if is_every_address(found.host) else found


def asked(page: Address, token: str) -> tuple[int, str]:
    """What `/readyz` says: status, and in words. Raises Unreachable."""
    connection = http.client.HTTPConnection(page.host, page.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/readyz", headers={"Authorization": f"Bearer {token}"} if token else {})
        response = connection.getresponse()
        return response.status, in_words(response.read())
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"no role answers on http://{page}/readyz: {error}; is it up?", address=str(page)) from error
    finally:
        connection.close()


def in_words(body: bytes) -> str:
    """What the page's JSON says, in one line."""
    try:
        status = msgspec.json.decode(body, type=dict[str, str | list[str]])
    except msgspec.DecodeError:
        return body.decode(errors="replace").strip()
    return "; ".join(part for value in status.values() for part in ([value] if isinstance(value, str) else value))
