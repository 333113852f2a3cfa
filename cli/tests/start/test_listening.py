"""A process that other machines would reach: refused without a token, for every role and every page; --insecure is said."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from boki_bookie.settings import BookieSettings
from boki_cli.roles import ProcessSettings
from boki_cli.start.listening import guard, pages_of
from boki_common.errors import SettingsError
from boki_common.net.connection import Address

if TYPE_CHECKING:
    from boki_cli.testing.commands import RunCommandLine

NOT_OURS = "203.0.113.1"
"""Of no machine: what is let pass there still opens nothing."""
ROLES = ("bookie", "sequencer", "engine", "controller", "gateway", "dev")


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("a-token-of-the-cluster-01")
    file.chmod(0o600)
    return file


def command(role: str, listen: str, folder: Path) -> list[str]:
    data = ["--data", str(folder / "data")] if role in ("bookie", "dev") else []
    metadata = [] if role in ("dev", "gateway") else ["--metadata", f"sqlite://{folder}/metadata.db"]
    url = ["--url", "http://x"] if role == "gateway" else []
    return [role, *data, *metadata, *url, "--listen", listen]


@pytest.mark.parametrize("how", ["nothing", "token", "insecure"])
@pytest.mark.parametrize("wide", ["listen", "metrics", "admin"])
@pytest.mark.parametrize("role", ROLES)
def test_no_port_of_any_role_is_reached_by_others_without_a_token(
    run_boki: RunCommandLine,
    tmp_path: Path,
    token: Path,
    role: str,
    wide: str,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if wide == "admin":
        if role != "bookie":
            return  # has none
        monkeypatch.setenv("BOKI_BOOKIE_ADMIN_HOST", NOT_OURS)
        monkeypatch.setenv("BOKI_BOOKIE_ADMIN_PORT", "1")
    if wide == "metrics":
        monkeypatch.setenv("BOKI_METRICS_LISTEN", f"{NOT_OURS}:1")
        if role == "gateway":
            return  # its metrics are on its own port
    listen = f"{NOT_OURS}:1" if wide == "listen" else "127.0.0.1:0"
    more = {"nothing": [], "token": ["--token-file", str(token)], "insecure": ["--insecure"]}[how]
    done = run_boki(*command(role, listen, tmp_path), *more)
    said = " ".join(done.err.split())
    assert done.out == "", "it does not serve"
    if how == "nothing":
        assert done.code == 2 and "expected a cluster token where other machines reach a port" in said
        assert f"found none for {NOT_OURS}:1" in said and "--token-file" in said and "--insecure" in said
    else:
        assert "expected a cluster token" not in said, "it went on, and met that this machine has no such address"
        assert done.code in (2, 3) and (
            "no such address" in said or "cannot be bound" in said or "expected a URL" in said
        )
        assert said.count("insecure: other machines reach") == (how == "insecure")


def test_a_file_that_others_may_read_keeps_a_role_from_starting(
    run_boki: RunCommandLine, tmp_path: Path, token: Path
) -> None:
    token.chmod(0o644)
    done = run_boki(*command("engine", "127.0.0.1:0", tmp_path), "--token-file", str(token))
    assert done.code == 2 and "chmod 600" in done.err and "a-token-of" not in done.err


def settings(**changes: Any) -> ProcessSettings:
    return dataclasses.replace(ProcessSettings(), **changes)


@pytest.mark.parametrize(
    ("addresses", "refused"),
    [(("127.0.0.1",), False), (("127.0.1.1", "::1"), False), (("127.0.0.1", "10.0.0.1"), True), ((), True)],
)
async def test_a_name_is_what_it_means(addresses: tuple[str, ...], refused: bool) -> None:
    class Resolver:
        def __init__(self) -> None:
            self.asked: list[str] = []

        async def __call__(self, host: str) -> list[str]:
            self.asked.append(host)
            return list(addresses)

    resolver = Resolver()
    guarded = guard(settings(), [Address("a-name", 1)], resolve=resolver)
    if refused:
        with pytest.raises(SettingsError, match="a-name:1"):
            await guarded
    else:
        await guarded
    assert resolver.asked == ["a-name"]


async def test_localhost_and_a_name_of_this_machine_are_resolved_by_the_system() -> None:
    await guard(settings(), [Address("localhost", 1), Address("", 0, "/run/engine.sock")])
    with pytest.raises(SettingsError):
        await guard(settings(), [Address("no-such-name.invalid", 1)])


def test_pages_are_ports_too() -> None:
    chosen = settings(metrics_listen="0.0.0.0:7090", bookie=BookieSettings(admin_port=7091, admin_host="10.0.0.1"))
    assert pages_of(chosen) == [Address("0.0.0.0", 7090), Address("10.0.0.1", 7091)]
    assert pages_of(settings()) == []
