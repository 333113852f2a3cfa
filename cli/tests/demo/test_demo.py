"""What the demo takes as its input; the whole demo runs as processes in itests."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from boki_cli import options
from boki_cli.demo import demo
from boki_common.errors import InvalidArgument

ROOT = Path(__file__).parents[3]


def test_a_file_of_the_users_own(tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    path.write_text('{"user": 1}\n{"user": 2}\n')
    given = demo.load_input(str(path), ("user",), "auto", tmp_path)
    assert (given.source, given.licence) == (str(path), "")
    assert (given.records, given.tags) == ([b'{"user": 1}', b'{"user": 2}'], [["user/1"], ["user/2"]])
    assert given.data_bytes == 22


def test_make_run_hands_over_a_file(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "none here.csv"
    make = ["make", "--dry-run", "--directory", str(ROOT), "run", f"INPUT={path}"]
    lines = subprocess.run(make, capture_output=True, text=True, check=True).stdout.splitlines()
    called = next(shlex.split(line) for line in lines if "boki_cli.demo.demo" in line)
    assert options.run(demo.demo, called[called.index("boki_cli.demo.demo") + 1 :], name="demo") == 2
    assert f"cannot read {path}: No such file" in capfd.readouterr().err


def test_what_is_no_input_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgument, match=r"cannot read .*none\.csv: No such file"):
        demo.load_input(str(tmp_path / "none.csv"), (), "auto", tmp_path)
    (tmp_path / "empty.csv").write_text("a,b\n")
    with pytest.raises(InvalidArgument, match=r"empty\.csv has no records"):
        demo.load_input(str(tmp_path / "empty.csv"), (), "auto", tmp_path)
    monkeypatch.setattr(demo, "BYTES_LIMIT", 3)
    with pytest.raises(InvalidArgument, match="expected at most 3 bytes of input, found 4"):
        demo.load_input(str(tmp_path / "empty.csv"), (), "auto", tmp_path)
