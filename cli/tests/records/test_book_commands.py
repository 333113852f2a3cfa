"""append, read, tail and trim against a cluster in memory: what goes in comes out, and what is wrong is said."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

import boki
from boki_cli.testing.commands import Terminal
from boki_common.runtime.process import SystemClock

if TYPE_CHECKING:
    from boki_cli.testing.commands import RunCommandLine


@pytest.fixture
def flights(tmp_path: Path) -> Path:
    rows = [f"{number},{('UA', 'AA', 'B6')[number % 3]},{'EWR' if number % 2 else ''}" for number in range(1, 1001)]
    path = tmp_path / "flights.csv"
    path.write_text("\n".join(["number,carrier,origin", *rows]) + "\n")
    return path


def test_a_file_comes_back_whole_and_by_tag(run_boki: RunCommandLine, memory_url: str, flights: Path) -> None:
    tags = ("--tag-field", "carrier", "--tag-field", "origin")
    done = run_boki("append", str(flights), "--book", "f", *tags, "--url", memory_url)
    assert done.code == 0, done.err
    assert done.out.startswith("1,000 records (")
    assert "committed to f in " in done.out
    lines = flights.read_text().splitlines()[1:]
    assert run_boki("read", "--book", "f", "--url", memory_url).out.splitlines() == lines
    by_tag = run_boki("read", "--book", "f", "--tag", "carrier/AA", "--url", memory_url).out.splitlines()
    assert by_tag == [line for line in lines if ",AA," in line]
    newest = run_boki("read", "--book", "f", "--tag", "origin/EWR", "--prev", "--limit", "2", "--url", memory_url)
    assert newest.out.splitlines() == [lines[998], lines[996]]
    assert run_boki("tail", "--book", "f", "-n", "3", "--url", memory_url).out.splitlines() == lines[-3:]


def test_json_and_ranges(run_boki: RunCommandLine, memory_url: str) -> None:
    stdin = b'{"user": 1}\n{"user": 2}\n{"user": "\xc3\xa9"}\n'
    appended = run_boki("append", "-", "--book", "b", "--tag-field", "user", "--json", "--url", memory_url, stdin=stdin)
    assert appended.code == 0, appended.err
    report = json.loads(appended.out)
    assert (report["records"], report["bytes"], report["complete"]) == (3, len(stdin) - 3, True)
    records = [
        json.loads(line) for line in run_boki("read", "--book", "b", "--json", "--url", memory_url).out.splitlines()
    ]
    assert [record["data"] for record in records] == ['{"user": 1}', '{"user": 2}', '{"user": "é"}']
    assert [record["tags"] for record in records] == [["user/1"], ["user/2"], ["user/é"]]
    assert (records[0]["seqnum"], records[-1]["seqnum"]) == (report["first_seqnum"], report["last_seqnum"])
    middle, last = str(records[1]["seqnum"]), str(records[2]["seqnum"])
    found = run_boki("read", "--book", "b", "--from", middle, "--to", last, "--url", memory_url).out
    assert found == '{"user": 2}\n'
    back = run_boki("read", "--book", "b", "--from", middle, "--to", last, "--prev", "--url", memory_url).out
    assert back == '{"user": 2}\n'


def test_an_empty_book_and_an_empty_file(run_boki: RunCommandLine, memory_url: str) -> None:
    for command in ("read", "tail"):
        words = "There are no records in the book 'none'.\n"
        assert run_boki(command, "--book", "none", "--url", memory_url) == (0, "", words)
        assert run_boki(command, "--book", "none", "--check", "--url", memory_url) == (1, "", words)
        failed = run_boki(command, "--book", "none", "--check", "--json", "--url", memory_url)
        assert (failed.code, failed.out, f"{json.loads(failed.err)['message']}\n") == (1, "", words)
    done = run_boki("append", "-", "--book", "none", "--url", memory_url)
    assert (done.code, done.out[:10]) == (0, "0 records ")


def test_what_was_asked_for_and_is_not_there_is_said(run_boki: RunCommandLine, memory_url: str) -> None:
    run_boki("append", "-", "--book", "b", "--tag-field", "n", "--url", memory_url, stdin=b'{"n": 1}\n')
    asked = ("--book", "b", "--url", memory_url)
    for command in ("read", "tail"):
        assert run_boki(command, *asked, "--check").code == 0
        tagged = run_boki(command, "--tag", "n/2", *asked, "--check")
        assert tagged == (1, "", "There are no records with the tag 'n/2' in the book 'b'.\n")
        later = run_boki(command, "--since", "2200-01-01", *asked)
        assert later == (0, "", "There are no records in the book 'b' in that range.\n")
    assert run_boki("tail", "-n", "0", *asked) == (0, "", ""), "nothing was asked for"
    for wrong in (("-f",), ("-n", "0")):
        assert run_boki("tail", *wrong, *asked, "--check").code == 2


def test_what_is_trimmed_is_gone_and_its_gap_is_printed(run_boki: RunCommandLine, memory_url: str) -> None:
    lines = b"".join(b'{"n": %d}\n' % number for number in range(10))
    done = run_boki("append", "-", "--book", "b", "--tag-field", "n", "--json", "--url", memory_url, stdin=lines)
    first = json.loads(done.out)["first_seqnum"]
    middle = str(first + 4)
    trimmed = run_boki("trim", "--book", "b", "--before", middle, "--url", memory_url)
    assert (trimmed.code, trimmed.out) == (0, f"b: begins at seqnum {middle} now\n")
    kept = lines.decode().splitlines()[4:]
    for consistency in ("session", "linearizable", "any"):
        found = run_boki("read", "--book", "b", "--consistency", consistency, "--url", memory_url)
        assert (found.out.splitlines(), found.err) == (kept, "")
    gap = run_boki("read", "--book", "b", "--from", str(first), "--limit", "1", "--url", memory_url)
    assert gap.out.splitlines() == kept[:1]
    assert gap.err == f"Note: records from seqnum {first} to {first + 3} may be missing: trimmed.\n"
    shown = run_boki("read", "--book", "b", "--from", str(first), "--json", "--url", memory_url).out.splitlines()
    assert json.loads(shown[0]) == {"gap": "trimmed", "first": first, "last": first + 3}
    assert len(shown) == 7
    back = run_boki(
        "read", "--book", "b", "--from", str(first), "--prev", "--json", "--url", memory_url
    ).out.splitlines()
    assert json.loads(back[-1]) == {"gap": "trimmed", "first": first, "last": first + 3}
    assert len(run_boki("read", "--book", "b", "--prev", "--url", memory_url).out.splitlines()) == 6
    assert len(run_boki("tail", "--book", "b", "--url", memory_url).out.splitlines()) == 6
    by_tag = run_boki("trim", "--book", "b", "--tag", "n/9", "--all", "--yes", "--json", "--url", memory_url)
    assert json.loads(by_tag.out) == {"book": "b", "tag": "n/9", "first_seqnum": None}
    assert run_boki("read", "--book", "b", "--url", memory_url).out.splitlines() == kept[:-1]
    everything = run_boki("trim", "--book", "b", "--all", "--forget", "--yes", "--url", memory_url)
    assert everything.out == "b: nothing is left\n"
    assert run_boki("read", "--book", "b", "--url", memory_url).err == "There are no records in the book 'b'.\n"


@pytest.mark.parametrize(
    "wrong", [(), ("--before", "5", "--all"), ("--before", "0"), ("--before", "5", "--older-than", "7d")]
)
def test_a_trim_says_how_far(run_boki: RunCommandLine, memory_url: str, wrong: tuple[str, ...]) -> None:
    run_boki("trim", "--book", "b", *wrong, "--url", memory_url).refused("--before")


WHOLE = ("--all",), ("--before", "9000000000000000000"), ("--older-than", "2200-01-01")


@pytest.mark.parametrize("which", WHOLE)
@pytest.mark.parametrize("tag", [None, "n/2"])
def test_a_trim_that_leaves_nothing_needs_a_yes(
    run_boki: RunCommandLine, memory_url: str, which: tuple[str, ...], tag: str | None
) -> None:
    stdin = b'{"n": 1}\n{"n": 2}\n{"n": 2}\n'
    asked = ("--book", "b", "--url", memory_url)
    call = ("trim", *asked, *which, *(() if tag is None else ("--tag", tag)))
    assert run_boki(*call).out == f"b{'' if tag is None else ', tag n/2'}: nothing is left\n", (
        "nothing goes: no question"
    )
    run_boki("append", "-", "--tag-field", "n", *asked, stdin=stdin)
    whole = "of the book 'b'" if tag is None else "of the tag 'n/2' in the book 'b'"
    run_boki(*call).refused(f"expected --yes, since this is no terminal to ask on: records {whole} cannot be restored")
    for typed in ("n\n", "\n"):
        done = run_boki(*call, typed=typed)
        assert (done.code, done.out) == (4, "")
        assert done.err.startswith(f"Drop all {3 if tag is None else 2} records {whole}? [y/N]: ")
        assert done.err.endswith("Nothing was dropped.\n")
    assert len(run_boki("read", *asked).out.splitlines()) == 3
    done = run_boki(*call, typed="y\n")
    assert (done.code, done.out) == (0, f"b{'' if tag is None else ', tag n/2'}: nothing is left\n")
    assert run_boki("read", *asked).out.splitlines() == ([] if tag is None else ['{"n": 1}'])


def test_a_trim_by_age_asks_nothing_though_a_quiet_book_becomes_empty(
    run_boki: RunCommandLine, memory_url: str
) -> None:
    """A job that runs each night needs no --yes, and does not fail in the first night after which nothing was appended."""
    asked = ("--book", "b", "--url", memory_url)
    run_boki("append", "-", *asked, "--format", "text", stdin=b"old")
    time_ms = json.loads(run_boki("read", *asked, "--json").out)["time_ms"]
    while SystemClock().now_ms() <= time_ms:
        pass
    assert run_boki("trim", *asked, "--older-than", str(time_ms + 1)).out == "b: nothing is left\n"


def test_what_comes_while_a_trim_asks_is_kept(
    run_boki: RunCommandLine, memory_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("--book", "b", "--url", memory_url)
    run_boki("append", "-", "--format", "text", *asked, stdin=b"old")

    class Late(Terminal):
        def answer(self, prompt: str) -> str:
            appended = Thread(target=lambda: asyncio.run(append_late()))
            appended.start()
            appended.join()
            return super().answer(prompt)

    async def append_late() -> None:
        async with boki.connect(memory_url) as client:
            await client.book("b").append(b"late")

    monkeypatch.setattr("boki_cli.testing.commands.Terminal", Late)
    assert run_boki("trim", *asked, "--all", typed="y\n").out.startswith("b: begins at seqnum ")
    assert run_boki("read", *asked).out == "late\n"


def test_a_trim_counts_no_more_than_it_must(run_boki: RunCommandLine, memory_url: str) -> None:
    asked = ("--book", "b", "--url", memory_url)
    run_boki("append", "-", "--format", "text", *asked, stdin=b"one\n" * 1001)
    done = run_boki("trim", *asked, "--all", typed="n\n")
    assert done.err.startswith("Drop all records (more than 1,000) of the book 'b'? [y/N]: ")


def test_what_was_ordered_in_a_time(run_boki: RunCommandLine, memory_url: str) -> None:
    def found(command: str, *arguments: str) -> list[str]:
        done = run_boki(command, "--book", "b", *arguments, "--url", memory_url)
        assert done.code == 0, done.err
        return done.out.splitlines()

    assert found("read", "--since", "1h") == found("tail", "--since", "1h") == []
    lines = [b"one", b"two", b"three"]
    done = run_boki("append", "-", "--book", "b", "--format", "text", "--url", memory_url, stdin=b"\n".join(lines))
    assert done.code == 0, done.err
    texts = [line.decode() for line in lines]
    time_ms = json.loads(found("read", "--json", "--limit", "1")[0])["time_ms"]
    behind = f"{time_ms + 86_400_000}"
    assert found("read", "--since", "1h") == found("tail", "--since", str(time_ms)) == texts
    assert found("read", "--since", str(time_ms), "--until", behind, "--prev") == texts[::-1]
    assert (
        found("read", "--until", str(time_ms))
        == found("read", "--since", behind)
        == found("tail", "--since", behind)
        == []
    )
    assert found("trim", "--older-than", str(time_ms))[0].startswith("b: begins at seqnum ")
    assert found("read") == texts
    assert found("trim", "--older-than", behind, "--yes") == ["b: nothing is left"]
    assert found("read", "--since", behind) == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["append", "{tmp}/no.csv", "--book", "b"], 2, "cannot read {tmp}/no.csv: No such file or directory"),
        (["append", "{tmp}/flihgts.csv", "--book", "b"], 2, "did you mean {tmp}/flights.csv?"),
        (["append", "{tmp}", "--book", "b"], 2, "cannot read {tmp}: it is a folder"),
        (["append", "{tmp}/flights.csv", "--book", "b", "--tag-field", "carier"], 2, "did you mean 'carrier'?"),
        (["append", "-", "--book", "b", "--format", "xml"], 2, "'xml' is not one of 'auto', 'jsonl', 'csv', 'text'"),
        (["append", "-"], 2, "Missing option '--book'"),
        (["append", "-", "--book", "b", "--tag-fields", "x"], 2, "--tag-field"),
        (["read", "--book", "b", "--limit", "0"], 2, "0 is not in the range x>=1"),
        (["read", "--book", "b", "--from", "5", "--to", "3"], 2, "expected --from up to --to, found 5 and 3"),
        (["read", "--book", "b", "--since", "1h", "--until", "2h"], 2, "expected --since to be before --until"),
        (["read", "--book", "b", "--since", "yesterday"], 2, "'--since': expected a time such as 2026-11-22"),
        (["tail", "--book", "b", "--since", "1h", "-n", "3"], 2, "expected -n or --since, found both"),
        (
            ["append", "-", "--book", "b", "--skip", "3"],
            2,
            "--skip 3: expected at least 3 records in standard input",
        ),
        (["read", "--book", ""], 2, "expected a book name of 1 to 1024 bytes, found 0"),
        (["read", "--book", "b", "--tag", ""], 2, "expected a tag name of 1 to 255 bytes, found 0"),
        (["red", "--book", "b"], 2, "no such command 'red'. Did you mean 'read'?"),
        (["read", "--book", "b", "--url", "http://x"], 2, "expected a URL such as boki://host:port"),
        (["read", "--book", "b", "--url", "unix:///none/such.sock", "--timeout", "0.1"], 3, "no engine answers"),
    ],
)
def test_wrong_calls_say_what_to_do(
    run_boki: RunCommandLine, memory_url: str, flights: Path, arguments: list[str], code: int, message: str
) -> None:
    tmp = str(flights.parent)
    given = [argument.replace("{tmp}", tmp) for argument in arguments]
    if "--url" not in given and "--tag-fields" not in given and given[0] != "red":
        given += ["--url", memory_url]
    done = run_boki(*given)
    assert done.code == code, done
    assert message.replace("{tmp}", tmp) in " ".join(done.err.replace("│", " ").split())
    assert "Traceback" not in done.err
