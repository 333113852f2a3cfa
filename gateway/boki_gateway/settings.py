"""Settings of a gateway."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from boki_common import limits
from boki_common.settings import setting

DEFAULT_PORT: Final = 7080


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """One gateway process."""

    listen: str = setting("", help="host:port where the gateway listens; empty: on this machine, at `port`.")
    port: int = setting(
        DEFAULT_PORT, help="Port of the gateway; 0: a free one; -1: boki dev has none.", minimum=-1, maximum=65_535
    )
    call_timeout_s: float = setting(
        30.0, help="How long a request goes on trying before it fails.", minimum=0.1, maximum=limits.SDK_GIVE_UP_S
    )
    requests: int = setting(1_024, help="Requests under way; more are refused with 503.", minimum=1)
    connections: int = setting(4_096, help="Open connections, idle ones too; more are ended.", minimum=1)
    streams: int = setting(256, help="Open event streams; more are refused with 503.", minimum=1)
    body_bytes: int = setting(
        128 * limits.MIB, help="Bodies of requests under way; more are refused with 503.", minimum=1
    )
    sessions: int = setting(
        4_096, unit="tokens", help="Session tokens whose sessions are kept; others are made anew.", minimum=1
    )
    heartbeat_s: float = setting(
        15.0, help="An event stream without events says so often that it is alive.", minimum=0.01
    )
    slow_reader_s: float = setting(
        30.0, help="An event stream whose reader takes nothing for so long is ended.", minimum=0.01
    )
    status_every_s: float = setting(
        2.0, help="How often the cluster is asked how it is, while somebody looks.", minimum=0.05
    )
