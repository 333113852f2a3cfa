"""append against a cluster in memory: what was committed is said, whatever ends it, and can be continued."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from boki_common import limits

if TYPE_CHECKING:
    from pathlib import Path

    from boki_cli.testing import RunCommandLine


def test_a_wrong_line_names_itself_and_what_is_committed(run_boki: RunCommandLine, memory_url: str) -> None:
    stdin = b"".join(b'{"n": %d}\n' % number for number in range(300)) + b"{oops\n"
    done = run_boki("append", "-", "--book", "b", "--url", memory_url, "--format", "jsonl", stdin=stdin)
    assert done.code == 2
    assert "standard input, line 301: expected a JSON value, found '{oops'" in done.err
    assert "300 records are committed, the last with seqnum" in done.err
    assert "--skip 300" in done.err
    fixed = stdin.replace(b"{oops", b'{"n": 300}')
    assert run_boki("append", "-", "--book", "b", "--skip", "300", "--url", memory_url, stdin=fixed).code == 0
    found = run_boki("read", "--book", "b", "--url", memory_url).out.splitlines()
    assert found == fixed.decode().splitlines()


def test_a_field_that_no_record_has_is_noted(run_boki: RunCommandLine, memory_url: str) -> None:
    done = run_boki("append", "-", "--book", "b", "--tag-field", "usr", "--url", memory_url, stdin=b'{"user": 1}\n')
    assert done.code == 0
    assert "no record has a value in the field 'usr'" in done.err


def test_skip_beyond_the_first_chunk(run_boki: RunCommandLine, memory_url: str, tmp_path: Path) -> None:
    path = tmp_path / "big.jsonl"
    line = b'"' + b"x" * 1000 + b'"'
    path.write_bytes(b"\n".join([line] * 2500 + [b'"last"']))
    assert path.stat().st_size > 2 * limits.MIB
    assert run_boki("append", str(path), "--book", "b", "--skip", "2499", "--url", memory_url).code == 0
    assert run_boki("read", "--book", "b", "--url", memory_url).out.splitlines() == [line.decode(), '"last"']


def test_lines_of_any_text_with_tags_of_their_own(run_boki: RunCommandLine, memory_url: str) -> None:
    tags = ("--tag", "host/a", "--tag", "system")
    stdin = b"plain text\n\n\xff\xfe is no UTF-8\r\n{and no JSON"
    done = run_boki("append", "-", "--book", "b", "--format", "text", *tags, "--url", memory_url, stdin=stdin)
    assert done.out.startswith("3 records (36 B) committed to b in "), done.err
    found = [
        json.loads(line) for line in run_boki("read", "--book", "b", "--json", "--url", memory_url).out.splitlines()
    ]
    assert [record["tags"] for record in found] == [["host/a", "system"]] * 3
    assert [record.get("data") for record in found] == ["plain text", None, "{and no JSON"]


def test_one_is_one_record(run_boki: RunCommandLine, memory_url: str) -> None:
    done = run_boki("append", "-", "--book", "b", "--url", memory_url, stdin=b"{}\n")
    assert done.out.startswith("1 record (2 B) committed to b in ")
    broken = run_boki("append", "-", "--book", "b", "--url", memory_url, stdin=b"{}\n{")
    assert "1 record is committed, the last with seqnum" in broken.err
