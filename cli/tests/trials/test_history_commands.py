"""`boki history check` on files."""

from __future__ import annotations

import json
from pathlib import Path

from boki_cli.testing.commands import run_command_line

APPEND = {
    "client": "c1",
    "kind": "append",
    "book": "b",
    "start": 0,
    "end": 1,
    "outcome": "ok",
    "data": "a",
    "seqnum": 7,
}
READ = {"client": "c1", "kind": "read", "book": "b", "start": 2, "end": 3, "outcome": "ok"}


def write(path: Path, *operations: dict[str, object]) -> str:
    path.write_text("\n".join(json.dumps(operation) for operation in operations))
    return str(path)


def test_a_good_history(tmp_path: Path) -> None:
    outcome = run_command_line("history", "check", write(tmp_path / "h", APPEND, {**READ, "rows": [[7, "a"]]}))
    assert outcome.code == 0
    assert "2 calls, nothing wrong" in outcome.err


def test_a_bad_history_is_reported_as_text_as_json_and_as_a_page(tmp_path: Path) -> None:
    path, page = write(tmp_path / "h", APPEND, READ), tmp_path / "page.html"
    outcome = run_command_line("history", "check", path, "--html", str(page))
    assert outcome.code == 1
    assert "1. lost (book b)" in outcome.err
    assert "<svg" in page.read_text()
    outcome = run_command_line("history", "check", path, "--json")
    assert outcome.code == 1
    assert json.loads(outcome.out.splitlines()[0])["anomaly"] == "lost"


def test_a_line_that_is_no_operation_is_named(tmp_path: Path) -> None:
    outcome = run_command_line("history", "check", write(tmp_path / "h", {"kind": "append"}))
    assert outcome.code == 4
    assert "line 1" in outcome.err
