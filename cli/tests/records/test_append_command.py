"""append against a cluster in memory: what was committed is said, whatever ends it, and can be continued."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from boki.testing import MemoryCluster
from boki_cli.options import Invocation
from boki_cli.records.append_command import Numbered, Source
from boki_cli.records.ingest import Ingest
from boki_common import limits
from boki_common.errors import InvalidArgument

if TYPE_CHECKING:
    from pathlib import Path

    from boki_cli.testing.commands import RunCommandLine


def test_a_wrong_line_names_itself_and_what_is_committed(run_boki: RunCommandLine, memory_url: str) -> None:
    stdin = b"".join(b'{"n": %d}\n' % number for number in range(300)) + b"{oops\n"
    done = run_boki("append", "-", "--book", "b", "--url", memory_url, "--format", "jsonl", stdin=stdin)
    done.refused(
        "standard input, line 301: expected a JSON value, found '{oops'",
        "300 records are committed, the last with seqnum",
        "--skip 300",
    )
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


def lines_of(*numbers: int) -> bytes:
    return b"".join(b'{"n": %d, "t": "x"}\n' % number for number in numbers)


def stored(run_boki: RunCommandLine, url: str, book: str = "b") -> str:
    return run_boki("read", "--book", book, "--url", url).out


def test_the_same_command_goes_on_behind_what_is_committed_a_whole_file_again(
    run_boki: RunCommandLine, memory_url: str, tmp_path: Path
) -> None:
    path = tmp_path / "in.jsonl"
    command = ("append", str(path), "--book", "b", "--url", memory_url)
    whole = lines_of(*range(300))
    path.write_bytes(whole.replace(b'{"n": 290,', b"{oops"))
    for committed_before in (0, 290):
        done = run_boki(*command)
        done.refused("line 291: expected a JSON value")
        assert "--skip" not in done.err
        assert "The same command continues exactly behind what is committed" in done.err
        assert f"{290 - committed_before} records are committed" in done.err or committed_before
        assert ("290 records are committed already, by an earlier run" in done.err) == bool(committed_before)
        assert stored(run_boki, memory_url) == lines_of(*range(290)).decode()
    path.write_bytes(whole)
    done = run_boki(*command, "--json")
    assert json.loads(done.out).items() >= {"records": 10, "committed_before": 290, "complete": True}.items()
    assert stored(run_boki, memory_url) == whole.decode()
    assert run_boki(*command).out.startswith("300 records ")
    assert stored(run_boki, memory_url) == (whole + whole).decode()


def test_an_input_that_is_another_one_by_now_is_refused(
    run_boki: RunCommandLine, memory_url: str, tmp_path: Path
) -> None:
    path = tmp_path / "in.jsonl"
    command = ("append", str(path), "--book", "b", "--url", memory_url)
    path.write_bytes(lines_of(*range(40)) + b"{oops")
    assert run_boki(*command).code == 2
    for content, more, message in (
        (lines_of(99, *range(40)), (), "has another record 2"),
        (lines_of(*range(50)), ("--tag-field", "t"), "has another record 2"),
        (lines_of(*range(39)), (), "an earlier run: expected at least 40 records in"),
    ):
        path.write_bytes(content)
        run_boki(*command, *more).refused(message)
    assert stored(run_boki, memory_url) == lines_of(*range(40)).decode()
    path.write_bytes(lines_of(*range(45)))
    assert run_boki(*command, "--skip", "41").out.startswith("4 records ")  # a person says where to begin
    assert stored(run_boki, memory_url) == lines_of(*range(40), *range(41, 45)).decode()


def test_a_named_writer_never_appends_the_same_input_twice(
    run_boki: RunCommandLine, memory_url: str, tmp_path: Path
) -> None:
    command = ("append", "-", "--book", "b", "--writer", "w", "--url", memory_url)
    assert run_boki(*command, stdin=lines_of(1, 2)).out.startswith("2 records ")
    again = run_boki(*command, stdin=lines_of(1, 2, 3))
    assert "2 records are committed already" in again.err
    assert again.out.startswith("1 record ")
    assert run_boki(*command, stdin=lines_of(1, 2, 3)).out.startswith("0 records ")
    assert run_boki(*command, stdin=lines_of(1, 9, 3)).code == 2
    path = tmp_path / "in.jsonl"  # wherever the input comes from
    path.write_bytes(lines_of(1, 2, 3, 4))
    assert run_boki("append", str(path), *command[2:]).out.startswith("1 record ")
    assert stored(run_boki, memory_url) == lines_of(1, 2, 3, 4).decode()


def test_files_of_equal_content_and_books_are_apart(run_boki: RunCommandLine, memory_url: str, tmp_path: Path) -> None:
    broken = lines_of(1) + b"{oops"
    for name in ("one.jsonl", "two.jsonl"):
        (tmp_path / name).write_bytes(broken)
        for book in ("b", "other"):
            assert run_boki("append", str(tmp_path / name), "--book", book, "--url", memory_url).code == 2
    assert stored(run_boki, memory_url) == lines_of(1, 1).decode()
    assert stored(run_boki, memory_url, "other") == lines_of(1, 1).decode()


def test_where_nothing_can_be_remembered_it_says_so_and_appends(
    run_boki: RunCommandLine, memory_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    path = tmp_path / "in.jsonl"
    path.write_bytes(lines_of(1) + b"{oops")
    done = run_boki("append", str(path), "--book", "b", "--url", memory_url)
    done.refused("so this run cannot be continued by the same command; --writer NAME can")
    assert "--skip 1" in done.err  # what is committed is known


@pytest.mark.parametrize("named", [False, True])
async def test_after_an_unknown_outcome_no_line_says_how_many_to_skip(named: bool) -> None:
    """How much is committed is a lower bound then: who skips so many has the rest twice."""
    async with MemoryCluster() as cluster:
        book = (await cluster.connect()).book("b")
        source = Source(Invocation(url=cluster.url), "b", "-", skip=0, writer="w" if named else None)
        ingest = Ingest(await source.open(book, cluster="c", regular=False))
        ingest.committed, ingest.failed = 512, True
        text = source.how_to_continue(ingest)
        assert "--skip" not in text
        assert ("The same command continues exactly" in text) == named
        assert ("Whether more are is not known" in text) != named


async def test_batches_behind_a_failed_one_are_not_appended() -> None:
    async with MemoryCluster() as cluster:
        writer = await (await cluster.connect()).book("b").writer("w")
        batches = Numbered(writer, 1)
        await batches.append_many([(b"1", ["t"])])
        await writer.append(b"somebody else's")
        with pytest.raises(InvalidArgument, match="expected 2 as the next number of writer 'w', found 3"):
            await batches.append_many([(b"2", ["t"])])
        assert writer.last == 2


def test_a_line_of_a_mebibyte_is_a_record_and_one_byte_more_is_refused(
    run_boki: RunCommandLine, memory_url: str
) -> None:
    line = b"x" * limits.RECORD_BYTES
    command = ("append", "-", "--book", "b", "--format", "text", "--tag", "t", "--url", memory_url)
    assert run_boki(*command, stdin=b"first\n" + line).out.startswith("2 records ")
    assert stored(run_boki, memory_url).splitlines()[1] == line.decode()
    done = run_boki(*command, stdin=b"first\n" + line + b"x")
    done.refused("standard input, line 2: expected a record of at most 1048576 bytes")


def test_json_that_is_nested_too_deeply_is_a_wrong_line(run_boki: RunCommandLine, memory_url: str) -> None:
    stdin = b'{"n": 1}\n' + b"[" * 100_000 + b"\n"
    done = run_boki("append", "-", "--book", "b", "--url", memory_url, stdin=stdin)
    done.refused("standard input, line 2: expected a JSON value, found '[[[[")
