"""What `compose.yaml` says, as far as this project uses it. Pure.

    project = parse(text, os.environ)     # raises ComposeFault: a key that is not understood, a name that is not there

Compose's own plugin reads the same file; this is for machines that have an engine and no plugin. So what is not understood is an
error, and nothing is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

SERVICE_KEYS: Final = frozenset(
    (
        *("image", "hostname", "command", "environment", "volumes", "ports", "networks", "secrets"),
        *("restart", "stop_grace_period", "profiles", "configs"),
    )
)
_VARIABLE: Final = re.compile(r"\$\{([A-Z_]+):-([^}]*)\}")
PROJECT_KEYS: Final = frozenset(("name", "services", "networks", "volumes", "secrets", "configs"))


class ComposeFault(Exception):
    """The file says what is not understood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One service. Volumes and configs are (name, path), ports (host address, host port, container port)."""

    name: str
    image: str
    hostname: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    volumes: tuple[tuple[str, str], ...]
    ports: tuple[tuple[str, int, int], ...]
    secrets: tuple[str, ...]
    configs: tuple[tuple[str, str], ...]
    profiles: tuple[str, ...]
    restart: str
    stop_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """All of a file that is asked for. `secrets`, `configs`: the file of each, by name."""

    name: str
    services: Mapping[str, Service]
    networks: tuple[str, ...]
    volumes: tuple[str, ...]
    secrets: Mapping[str, str]
    configs: Mapping[str, str]


def parse(text: str, environ: Mapping[str, str]) -> Project:
    """Reads a file.

    Args:
        environ: values of its variables, `${NAME:-default}`; services with `profiles` are left out, but those that
            `COMPOSE_PROFILES` names, separated by commas.

    Raises:
        ComposeFault: it says what is not understood.
    """
    found = yaml.safe_load(_VARIABLE.sub(lambda met: environ.get(met[1]) or met[2], text))
    if not isinstance(found, dict):
        raise ComposeFault(f"expected a mapping, found {type(found).__name__}")
    _known("the file", found, PROJECT_KEYS)
    services = [_service(name, said) for name, said in found.get("services", {}).items()]
    asked = {name.strip() for name in environ.get("COMPOSE_PROFILES", "").split(",")}
    project = Project(
        name=str(found.get("name", "boki")),
        services={one.name: one for one in services if not one.profiles or asked.intersection(one.profiles)},
        networks=tuple(found.get("networks", {})),
        volumes=tuple(found.get("volumes", {})),
        secrets={name: str(said["file"]) for name, said in found.get("secrets", {}).items()},
        configs={name: str(said["file"]) for name, said in found.get("configs", {}).items()},
    )
    for service in services:
        for what, names, known in (
            ("volume", [name for name, _ in service.volumes], project.volumes),
            ("secret", service.secrets, tuple(project.secrets)),
            ("config", [name for name, _ in service.configs], tuple(project.configs)),
        ):
            for name in names:
                if name not in known:
                    raise ComposeFault(f"{service.name}: expected one of the {what}s {sorted(known)}, found {name}")
    return project


def _service(name: str, said: Mapping[str, Any]) -> Service:
    _known(name, said, SERVICE_KEYS)
    return Service(
        name=name,
        image=said["image"],
        hostname=said.get("hostname", name),
        command=tuple(said.get("command", ())),
        environment={key: str(value) for key, value in said.get("environment", {}).items()},
        volumes=tuple(_pair(name, text) for text in said.get("volumes", ())),
        ports=tuple(_port(name, text) for text in said.get("ports", ())),
        secrets=tuple(said.get("secrets", ())),
        configs=tuple((str(one["source"]), str(one["target"])) for one in said.get("configs", ())),
        profiles=tuple(said.get("profiles", ())),
        restart=str(said.get("restart", "no")),
        stop_s=_seconds(name, str(said.get("stop_grace_period", "10s"))),
    )


def _pair(name: str, text: str) -> tuple[str, str]:
    volume, _, path = text.partition(":")
    if not path.startswith("/") or "/" in volume:
        raise ComposeFault(f"{name}: expected a volume as name:/path, found {text!r}")
    return volume, path


def _port(name: str, text: str) -> tuple[str, int, int]:
    host, *ports = text.rsplit(":", 2)
    if len(ports) != 2 or not all(port.isdigit() for port in ports):
        raise ComposeFault(f"{name}: expected a port as address:port:port, found {text!r}")
    return host, int(ports[0]), int(ports[1])


def _seconds(name: str, text: str) -> int:
    if not text.endswith("s") or not text[:-1].isdigit():
        raise ComposeFault(f"{name}: expected seconds such as 20s, found {text!r}")
    return int(text[:-1])


def _known(where: str, said: Mapping[str, Any], keys: frozenset[str]) -> None:
    unknown = sorted(key for key in said if key not in keys and not key.startswith("x-"))
    if unknown:
        raise ComposeFault(f"{where}: expected keys of {sorted(keys)}, found {unknown}")
