"""`boki offload` on a cluster in a process of its own: its output, and runs after it was killed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)

import pyarrow.parquet as parquet

import boki
from boki_cli.testing.commands import run_command_line

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

BOKI = [sys.executable, "-m", "boki_cli.main"]


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BOKI_")}
    return {**kept, "BOKI_ENGINE_HOUSEKEEPING_S": "0.05"}


@pytest.fixture
def cluster(shared_cluster: str) -> str:
    """Return the address of the cluster, in a term without records of an earlier test."""
    run("log", "roll", "0", "--url", shared_cluster)
    return shared_cluster


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a `boki dev` whose engine writes index snapshots at once, and return its address."""
    tmp_path = tmp_path_factory.mktemp("dev")
    command = [*BOKI, "dev", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment(), text=True) as process,
    ):
        try:
            assert process.stdout is not None
            found = (re.search(r"boki://[\w.]+:[1-9]\d*", line) for line in process.stdout)
            yield next(one[0] for one in found if one)
        finally:
            process.kill()


def run(*arguments: str, expected: int = 0) -> list[dict[str, Any]]:
    done = run_command_line(*arguments, "--json")
    assert done.code == expected, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def offloaded(url: str, folder: str, term: int) -> list[dict[str, Any]]:
    """Return the output of `boki offload` once a snapshot covers the sealed term."""
    return run("offload", str(term), "--to", folder, "--url", url, "--wait", "60")


def test_a_term_is_offloaded_once_and_reported(cluster: str, tmp_path: Path) -> None:
    folder = f"file://{tmp_path}/cold"
    with boki.sync.connect(cluster) as client:
        book = client.book("once")
        term = book.append_many([(b"%d" % at, [f"tag/{at % 3}"]) for at in range(300)])[0] >> 35
        assert "boki log roll 0" in run("offload", str(term), "--to", folder, "--url", cluster, expected=1)[0]["why"]
        run("log", "roll", "0", "--url", cluster)
        (made,) = offloaded(cluster, folder, term)
        assert (made["rows"], made["slices"]) == (300, 1) and made["manifest"].startswith(folder)
        (again,) = run("offload", str(term), "--to", folder, "--url", cluster)
        assert again["why"] == "it is copied" and again["manifest"] == made["manifest"]
        (file,) = (tmp_path / "cold").rglob("*.parquet")
        assert sorted(parquet.read_table(file).column("data").to_pylist()) == sorted(b"%d" % at for at in range(300))
        assert len(list(book.read())) == 300


def test_killed_in_the_middle_it_goes_on_and_leaves_nothing(cluster: str, tmp_path: Path) -> None:
    folder = f"file://{tmp_path}/cold"
    with boki.sync.connect(cluster) as client:
        book = client.book("killed")
        term = book.append_many([(b"x" * 1000, [f"tag/{at}"]) for at in range(2000)])[0] >> 35
    run("log", "roll", "0", "--url", cluster)
    command = [*BOKI, "offload", str(term), "--to", folder, "--url", cluster]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as work:
        while work.poll() is None and not list(tmp_path.glob("cold/*/*/*/*")):
            pass
        work.kill()
    (made,) = offloaded(cluster, folder, term)
    assert made["manifest"].startswith(folder)
    attempts = {path.parent for path in tmp_path.glob("cold/*/*/*/*")}
    assert attempts == {Path(made["manifest"].removeprefix("file://")).parent}


def test_what_is_not_copied_is_named_with_its_reason(cluster: str, tmp_path: Path) -> None:
    """The command may run right after `boki log roll`, before an index snapshot covers the term."""
    folder = f"file://{tmp_path}/cold"
    with boki.sync.connect(cluster) as client:
        terms = []
        for at in range(3):
            terms.append(client.book("left").append_many([(b"%d" % at, [])] * 5)[0] >> 35)
            run("log", "roll", "0", "--url", cluster)
            found = {one["term"]: one for one in run("offload", "--to", folder, "--url", cluster)}
            assert all(one["manifest"] or one["why"] for one in found.values()) and terms[-1] in found
    run("offload", "--to", folder, "--url", cluster, "--wait", "60")
    with boki.sync.connect(cluster) as client:
        running = client.book("left").append_many([(b"x", [])])[0] >> 35
    found = {one["term"]: one for one in run("offload", "--to", folder, "--url", cluster)}
    assert not found.keys() & set(terms) and "boki log roll 0" in found[running]["why"]
    copied, unsealed, unknown = run(
        "offload", str(terms[0]), str(running), "1000", "--to", folder, "--url", cluster, expected=1
    )
    assert copied["why"] == "it is copied" and copied["manifest"] and not unsealed["manifest"]
    assert unknown["why"] == "there is no such term"


def test_a_damaged_file_is_reported_and_its_term_copied_again(cluster: str, tmp_path: Path) -> None:
    folder = f"file://{tmp_path}/cold"
    with boki.sync.connect(cluster) as client:
        term = client.book("damaged").append_many([(b"%d" % at, []) for at in range(100)])[0] >> 35
    run("log", "roll", "0", "--url", cluster)
    rows = offloaded(cluster, folder, term)[0]["rows"]
    for prove in ([str(term)], ["--prove"]):
        (file,) = tmp_path.glob("cold/*/*/*/*.parquet")
        data = file.read_bytes()
        file.write_bytes(data[:50] + bytes([data[50] ^ 1]) + data[51:])
        found = {one["term"]: one for one in run("offload", *prove, "--to", folder, "--url", cluster)}
        assert found[term]["rows"] == rows >= 100 and found[term]["damage"].startswith("[BOKI_COLD_DAMAGED]")
        assert file.name in found[term]["damage"] and not file.exists()


def test_a_folder_that_is_no_url_is_refused() -> None:
    run("offload", "--to", "cold", expected=2)
