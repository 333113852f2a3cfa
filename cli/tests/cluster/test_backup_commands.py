"""`boki backup check` names what is wrong with a copy; `adopt` takes one that is whole. On copies of one small cluster that ended."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import boki
from boki_cli.testing.commands import run_command_line

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]


class Dev:
    """A `boki dev` of two bookies in a process of its own."""

    def __init__(self, data: Path) -> None:
        self.data = data
        command = [
            "dev",
            "--data",
            str(data),
            "--bookies",
            "2",
            "--listen",
            "127.0.0.1:0",
            "--gateway-port",
            "-1",
            "--json",
        ]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "boki_cli.main", *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        self.url = f"boki://{json.loads(self._process.stdout.readline())['addresses'][0]}"

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of a cluster, each made when it was killed: `first`, `second`, `third`. Bookies started once between two of them."""
    folder = tmp_path_factory.mktemp("backups")
    for name in ("first", "second", "third"):
        dev = Dev(folder / "data")
        try:
            with boki.sync.connect(dev.url) as client:
                client.book("orders").append_many([(b"%d" % at, ["t"]) for at in range(50)])
            assert run_command_line("log", "roll", "0", "--url", dev.url).code == 0
        finally:
            dev.end()
        shutil.copytree(folder / "data", folder / name)
    return folder


def check(folder: Path, *, command: str = "check", expected: int = 0) -> dict[str, Any]:
    done = run_command_line("backup", command, str(folder), "--json")
    assert done.code == expected, (done.out, done.err)
    found: dict[str, Any] = json.loads(done.out.splitlines()[0]) if done.out else {}
    return found


def test_a_directory_on_which_a_bookie_runs_is_no_copy(ended: Path, tmp_path: Path) -> None:
    shutil.copytree(ended / "third", tmp_path / "data")
    dev = Dev(tmp_path / "data")
    try:
        found = check(tmp_path / "data", expected=1)
        assert [one for one in found["faults"] if "a bookie runs on" in one and "found the original" in one][1:], found
        check(tmp_path / "data", command="adopt", expected=4)
        with boki.sync.connect(dev.url) as client:
            client.book("orders").append(b"still served")
    finally:
        dev.end()
    assert not [one for one in check(tmp_path / "data")["faults"] if "runs" in one], "it ended"


def test_a_whole_copy_is_whole_and_is_not_changed(ended: Path) -> None:
    before = {path: path.read_bytes() for path in (ended / "third").glob("bookie-*/**/*") if path.is_file()}
    found = check(ended / "third")
    assert found["ok"] and len(found["bookies"]) == 2 and found["closed_ledgers"] and found["entries"], found
    assert not found["notes"] and not found["fewer_copies"]
    assert {path: path.read_bytes() for path in before} == before
    assert "bookies" in run_command_line("backup", "check", str(ended / "third")).out


def without_a_segment(copy: Path, _: Path) -> None:
    min((copy / "bookie-1" / "journal").glob("*.segment")).unlink()


def with_a_damaged_segment(copy: Path, _: Path) -> None:
    path = min((copy / "bookie-1" / "journal").glob("*.segment"))
    data = bytearray(path.read_bytes())
    data[8192:8200] = bytes(one ^ 0xFF for one in data[8192:8200])
    path.write_bytes(data)


def without_an_index(copy: Path, _: Path) -> None:
    for path in (copy / "bookie-2" / "index").glob("*"):
        path.write_bytes(path.read_bytes()[:-1])


def without_bookies(copy: Path, _: Path) -> None:
    for path in copy.glob("bookie-*"):
        shutil.rmtree(path)


def with_an_older_bookie(copy: Path, ended: Path) -> None:
    shutil.rmtree(copy / "bookie-1")
    shutil.copytree(ended / "first" / "bookie-1", copy / "bookie-1")


def with_older_metadata(copy: Path, ended: Path) -> None:
    for path in copy.glob("metadata.db*"):
        path.unlink()
    for path in (ended / "first").glob("metadata.db*"):
        shutil.copy(path, copy)


@pytest.mark.parametrize(
    ("harm", "fault"),
    [
        (without_a_segment, "bookie-1"),
        (with_a_damaged_segment, "bookie-1"),
        (without_an_index, "bookie-2"),
        (without_bookies, "no copy of"),
        (without_bookies, "cannot be recovered"),
        (without_bookies, "found none in the backup"),
        (with_an_older_bookie, "it was copied before the metadata"),
        (with_older_metadata, "the bookie was restarted after the metadata was copied"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_adopted(
    ended: Path, tmp_path: Path, harm: Callable[[Path, Path], None], fault: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(ended / "third", copy)
    harm(copy, ended)
    found = check(copy, expected=1)
    assert not found["ok"] and any(fault in one for one in found["faults"]), found["faults"]
    check(copy, command="adopt", expected=1)
    assert check(copy, expected=1)["cluster"] == found["cluster"]


def test_a_bookie_that_is_not_there_is_a_note_while_the_other_has_its_entries(ended: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(ended / "third", copy)
    shutil.rmtree(copy / "bookie-2")
    found = check(copy)
    assert found["ok"] and "is not in the backup" in found["notes"][0] and found["fewer_copies"] == found["entries"]


def test_an_adopted_copy_is_another_cluster_and_starts(ended: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(ended / "third", copy)
    before = check(copy)
    after = check(copy, command="adopt")
    assert after["ok"] and after["cluster"] != before["cluster"] and not after["sessions"]
    dev = Dev(copy)
    try:
        check(copy, command="adopt", expected=4)
        with boki.sync.connect(dev.url) as client:
            assert len(list(client.book("orders").read())) == 150
            client.book("orders").append(b"new")
    finally:
        dev.end()


def test_what_is_no_backup_is_said(tmp_path: Path) -> None:
    done = run_command_line("backup", "check", str(tmp_path))
    assert done.code == 2 and "metadata.db" in done.err
