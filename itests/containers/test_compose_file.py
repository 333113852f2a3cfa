"""`compose.yaml` is read as Compose reads it, and what is not understood is refused."""

from __future__ import annotations

from typing import Final

import pytest

from boki_cli.roles import process_settings
from deploy.compose_file import ComposeFault, Project, parse
from deploy.images import ROOT

TEXT: Final = (ROOT / "compose.yaml").read_text()
PROJECT: Final[Project] = parse(TEXT, {})


def test_it_has_every_role_and_publishes_two_ports_to_this_machine_alone() -> None:
    kinds = [name.partition("-")[0] for name in PROJECT.services]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "zookeeper": 1, "bookie": 3, "sequencer": 2, "engine": 2, "controller": 2, "gateway": 1,
    }  # fmt: skip
    ports = [port for service in PROJECT.services.values() for port in service.ports]
    assert ports == [("127.0.0.1", 7040, 7140), ("127.0.0.1", 7080, 7080)]


def test_the_ports_are_the_users_to_choose_and_announced_to_sdks() -> None:
    chosen = parse(TEXT, {"SDK_PORT": "17040", "HTTP_PORT": "17080"})
    assert chosen.services["engine-1"].ports == (("127.0.0.1", 17040, 7140),)
    assert chosen.services["engine-1"].environment["BOKI_ENGINE_OUTSIDE_ADVERTISE"] == "127.0.0.1:17040"
    assert chosen.services["gateway"].ports == (("127.0.0.1", 17080, 7080),)


@pytest.mark.parametrize("name", [name for name in PROJECT.services if name != "zookeeper"])
def test_every_role_has_settings_that_exist_and_a_name_of_its_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = PROJECT.services[name]
    for variable, value in service.environment.items():
        monkeypatch.setenv(variable, value)
    settings = process_settings(None, {})
    assert settings.token_file == "/run/secrets/token" and set(service.secrets) == {"token", "zookeeper_digest"}
    assert service.hostname == name and not settings.insecure
    advertised = {
        "bookie": settings.bookie.host,
        "sequencer": settings.sequencer.advertise,
        "controller": settings.controller.advertise,
        "engine": ",".join(settings.engine.advertise),
    }.get(service.command[0], name)
    assert advertised == name


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[]", "expected a mapping"),
        ("services: {a: {image: x, privileged: true}}", r"found \['privileged'\]"),
        ("services: {a: {image: x, volumes: ['data:/x']}}", "expected one of the volumes"),
        ("services: {a: {image: x, secrets: [token]}}", "expected one of the secrets"),
        ("services: {a: {image: x, volumes: ['/etc:/x']}}", "expected a volume as name:/path"),
        ("services: {a: {image: x, ports: ['80']}}", "expected a port as address:port:port"),
        ("services: {a: {image: x, stop_grace_period: 1m}}", "expected seconds"),
    ],
)
def test_what_is_not_understood_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ComposeFault, match=fault):
        parse(text, {})
