"""A role that cannot start says why, what to do, and with which exit code; nothing hangs, nothing shows a traceback."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from boki_cli.options import Invocation
from boki_cli.options import Invocation
from boki_cli.roles import ProcessSettings
from boki_cli.start import dev, role_commands
from boki_cli.testing.commands import Outcome, RunCommandLine


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def refused(done: Outcome, code: int, *messages: str) -> None:
    assert done.code == code, done
    said = " ".join(done.err.split())
    for message in messages:
        assert message in said
    assert "Traceback" not in said


@pytest.mark.parametrize("role", ["sequencer", "engine", "bookie", "controller"])
def test_a_port_in_use(run_boki: RunCommandLine, tmp_path: Path, taken_port: int, role: str) -> None:
    data = ("--data", str(tmp_path / "data")) if role == "bookie" else ()
    metadata = f"sqlite:///{tmp_path}/metadata.db"
    done = run_boki(role, "--metadata", metadata, "--listen", f"127.0.0.1:{taken_port}", *data)
    refused(done, 2, f"cannot listen on 127.0.0.1:{taken_port}: Address already in use", "choose another port")
    assert done.out == ""


def test_dev_on_a_port_in_use(run_boki: RunCommandLine, tmp_path: Path, taken_port: int) -> None:
    data, taken = tmp_path / "data", f"127.0.0.1:{taken_port}"
    for where in (("--listen", taken), ("--listen", "127.0.0.1:0", "--gateway-port", str(taken_port))):
        done = run_boki("dev", "--data", str(data), *where)
        refused(done, 2, f"cannot listen on {taken}: Address already in use", "choose another port")
        assert not list(data.iterdir()), "nothing is formatted"


@pytest.mark.parametrize("role", ["sequencer", "engine", "bookie", "dev"])
def test_metrics_on_a_port_in_use(run_boki: RunCommandLine, tmp_path: Path, taken_port: int, role: str) -> None:
    data = ("--data", str(tmp_path / "data")) if role in ("bookie", "dev") else ()
    metadata = ("--metadata", f"sqlite:///{tmp_path}/metadata.db") if role != "dev" else ()
    done = run_boki(role, *metadata, *data, "--listen", "127.0.0.1:0", "--metrics", f"127.0.0.1:{taken_port}")
    refused(done, 2, f"found that 127.0.0.1:{taken_port} is in use", "choose another metrics port")
    assert done.out == ""


def test_a_directory_that_cannot_be_written(run_boki: RunCommandLine, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run_boki("dev", "--data", str(tmp_path / "file" / "data"))
    refused(
        done, 4, f"cannot make the data directory {tmp_path}/file/data: Not a directory; choose another with --data"
    )


def test_a_directory_of_a_wiped_bookie(run_boki: RunCommandLine, tmp_path: Path, taken_port: int) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "something-else").write_text("not ours")
    metadata = f"sqlite:///{tmp_path}/metadata.db"
    done = run_boki("bookie", "--metadata", metadata, "--listen", f"127.0.0.1:{taken_port}", "--data", str(data))
    refused(done, 4, str(data))


def test_a_damaged_or_lost_directory_starts_only_with_the_option_for_it(
    run_boki: RunCommandLine, tmp_path: Path, taken_port: int
) -> None:
    """What the flags let through ends at the port, which is taken."""
    data = tmp_path / "data"
    metadata = f"sqlite:///{tmp_path}/metadata.db"

    def start(*flags: str) -> Outcome:
        where = ("--listen", f"127.0.0.1:{taken_port}", "--data", str(data))
        return run_boki("bookie", "--metadata", metadata, *where, *flags)

    refused(start(), 2, "Address already in use")
    (data / "CHECKPOINT").write_bytes(b"")
    refused(start(), 4, str(data / "CHECKPOINT"), "at byte 0", "--salvage")
    assert not (data / "LIMBO").exists()
    refused(start("--salvage"), 2, "Address already in use")
    assert (data / "LIMBO").exists(), "until it has served and looked at what it owes"
    refused(start(), 2, "Address already in use")
    for path in sorted(data.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    refused(
        start(), 4, "the metadata knows a bookie there", "--replace-lost-disk", "BOKI_BOOKIE_REPLACE_LOST_DISK=true"
    )
    refused(start("--replace-lost-disk"), 2, "Address already in use")


def test_the_directories_of_a_bookie_are_fixed(run_boki: RunCommandLine, tmp_path: Path, taken_port: int) -> None:
    """What may start ends at the port, which is taken."""
    one, two, three = (str(tmp_path / name) for name in ("one", "two", "three"))

    def start(*directories: str) -> Outcome:
        where = ("--metadata", f"sqlite:///{tmp_path}/metadata.db", "--listen", f"127.0.0.1:{taken_port}")
        more = [argument for directory in directories[1:] for argument in ("--more-data", directory)]
        return run_boki("bookie", *where, "--data", directories[0], *more)

    refused(start(one, two), 2, "Address already in use")
    refused(start(one, two), 2, "Address already in use")
    refused(start(one), 4, "expected 2 directories of bookie")
    refused(start(two, one), 4, "in the order in which they were formatted")
    refused(start(one, two, three), 4, f"{three} was added")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["engine"], 2, "expected --metadata (or BOKI_METADATA), found none"),
        (["engine", "--metadata", "nonsense"], 2, "expected a metadata address sqlite:///absolute/path.db"),
        (
            ["engine", "--metadata", "memory://", "--listen", "nowhere"],
            2,
            "expected host:port or unix:///path, found 'nowhere'",
        ),
        (
            ["bookie", "--metadata", "memory://", "--listen", "127.0.0.1:1", "--listen", "127.0.0.1:2"],
            2,
            "a bookie listens on one address",
        ),
        (["dev", "--bookies", "0"], 2, "0 is not in the range 1<=x<=9"),
        (["dev", "--dta", "x"], 2, "--data"),
        (["sequencer", "--data", "x"], 2, "No such option '--data'"),
        (["init"], 2, "expected --metadata"),
    ],
)
def test_wrong_calls(run_boki: RunCommandLine, arguments: list[str], code: int, message: str) -> None:
    refused(run_boki(*arguments), code, message)


def test_wrong_settings_are_all_said(run_boki: RunCommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "boki.toml"
    file.write_text("[engine]\nreplicaz = 5\ncache_bytes = -1\n")
    monkeypatch.setenv("BOKI_METADATTA", "x")
    done = run_boki("engine", "--config", str(file))
    refused(done, 2, "engine.replicaz; did you mean engine.replicas?", "BOKI_METADATTA; did you mean BOKI_METADATA?")
    refused(run_boki("engine", "--config", str(tmp_path / "none.toml")), 2, "none.toml' does not exist")


def test_which_log_a_sequencer_stands_by_for(run_boki: RunCommandLine, tmp_path: Path, taken_port: int) -> None:
    metadata = ("--metadata", f"sqlite:///{tmp_path}/metadata.db", "--listen", f"127.0.0.1:{taken_port}")
    for log in ("any", "3"):
        refused(run_boki("sequencer", "--log", log, *metadata), 2, "Address already in use")
    refused(run_boki("sequencer", "--log", "all", *metadata), 2, "expected the number of a log or any, found 'all'")


def test_a_new_cluster_has_so_many_logs(run_boki: RunCommandLine, tmp_path: Path) -> None:
    metadata = ("--metadata", f"sqlite:///{tmp_path}/metadata.db")
    for logs in ("3", "2"):
        assert run_boki("init", *metadata, "--logs", logs).code == 0
    listed = [json.loads(line) for line in run_boki("log", "ls", *metadata, "--json").out.splitlines()]
    assert [(one["log"], one["term"], one["slot_count"]) for one in listed] == [(0, 0, 342), (1, 0, 341), (2, 0, 341)]
    assert "none yet" in run_boki("log", "ls", *metadata).out


def test_init_may_be_repeated(run_boki: RunCommandLine, tmp_path: Path) -> None:
    metadata = f"sqlite:///{tmp_path}/metadata.db"
    first = run_boki("init", "--metadata", metadata)
    assert (first.code, first.err) == (0, "")
    assert f"{metadata} holds a cluster now" in first.out
    again = run_boki("init", "--metadata", metadata, "--json")
    assert json.loads(again.out) == {"metadata": metadata, "ready": True}


def test_the_admin_page_on_a_port_in_use(run_boki: RunCommandLine, tmp_path: Path, taken_port: int) -> None:
    metadata = f"sqlite:///{tmp_path}/metadata.db"
    where = ("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--admin-port", str(taken_port))
    refused(run_boki("bookie", "--metadata", metadata, *where), 2, "admin page", f"127.0.0.1:{taken_port} is in use")


@pytest.mark.parametrize(
    ("role", "default"),
    [
        ("bookie", "127.0.0.1:3181"),
        ("sequencer", "127.0.0.1:7041"),
        ("engine", "127.0.0.1:7040"),
        ("controller", "127.0.0.1:7042"),
    ],
)
def test_help_names_the_port_that_a_role_has_by_default(run_boki: RunCommandLine, role: str, default: str) -> None:
    said = " ".join(run_boki(role, "--help").out.split())
    assert f"Default: {default}" in said
    assert ("or a free port if that is taken" in said) == (role != "engine")


@pytest.mark.parametrize(
    "command",
    [("dev",), ("bookie", "--metadata", "sqlite:////x"), ("bookie", "--metadata", "sqlite:////x", "--more-data", "")],
)
def test_a_data_folder_without_a_name_is_refused(
    run_boki: RunCommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    more = () if "--more-data" in command else ("--data", "")
    refused(run_boki(*command, *more), 2, "expected the path of a folder, found nothing")
    assert list(tmp_path.iterdir()) == []


def test_dev_offers_the_ways_out_that_texts_name(
    run_boki: RunCommandLine, tmp_path: Path, taken_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(_: object) -> None:
        """The port was free when `boki dev` looked, and was taken after that."""

    monkeypatch.setattr(dev, "check_addresses", nothing)
    listen = ("--listen", f"127.0.0.1:{taken_port}")
    data = tmp_path / "data"
    assert run_boki("dev", "--data", str(data), *listen).code == 2  # bookie-1 was formatted by then
    for path in sorted((data / "bookie-1").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    refused(run_boki("dev", "--data", str(data), *listen), 4, "start with --replace-lost-disk")
    refused(run_boki("dev", "--data", str(data), "--replace-lost-disk", *listen), 2, "Address already in use")
    assert run_boki("dev", "--data", str(data), "--salvage", *listen).code == 2


def test_dev_says_its_pid(capsys: pytest.CaptureFixture[str]) -> None:
    settings = ProcessSettings(data=Path("/data"))
    role_commands._announce_dev(Invocation(), settings, 1)(["127.0.0.1:7040"], "", "")
    first = capsys.readouterr().out.splitlines()[0]
    assert first == f"boki dev listens on boki://127.0.0.1:7040, data in /data, pid {os.getpid()}"
