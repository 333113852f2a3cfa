"""Variables that nobody set: what Kubernetes and linked containers put into the environment for each service. Pure.

A service called `boki-engine` appears in every container of its namespace as

    BOKI_ENGINE_SERVICE_HOST=10.0.0.7          BOKI_ENGINE_PORT=tcp://10.0.0.7:7040
    BOKI_ENGINE_SERVICE_PORT=7040              BOKI_ENGINE_PORT_7040_TCP=tcp://10.0.0.7:7040
    BOKI_ENGINE_SERVICE_PORT_SDK=7040          BOKI_ENGINE_PORT_7040_TCP_PROTO=tcp, …_PORT=7040, …_ADDR=10.0.0.7

Some of these are names of settings too (`BOKI_GATEWAY_PORT`); the value tells them apart. Only such forms are passed over: anything
else that begins with BOKI_ and is no setting stays an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_URL: Final = re.compile(r"(tcp|udp|sctp)://[^/]+:[0-9]+")
_OF_A_PORT: Final = re.compile(r".+_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?")
_OF_A_SERVICE: Final = re.compile(r"(?P<service>.+)_SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)")


def injected(environ: Mapping[str, str]) -> frozenset[str]:
    """The names in an environment that were put there for services, not by a person."""
    return frozenset(name for name, value in environ.items() if _is_injected(name, value, environ))


def _is_injected(name: str, value: str, environ: Mapping[str, str]) -> bool:
    if name.endswith("_PORT") and _URL.fullmatch(value):
        return True
    if _OF_A_PORT.fullmatch(name):
        return True
    found = _OF_A_SERVICE.fullmatch(name)
    return found is not None and _URL.fullmatch(environ.get(f"{found['service']}_PORT", "")) is not None
