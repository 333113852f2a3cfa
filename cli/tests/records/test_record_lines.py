"""Files become records: byte for byte, tagged by field, however they are cut into chunks; wrong lines are named."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_cli.records.record_lines import Line, RecordLines, batches
from boki_common import limits
from boki_common.errors import BokiError, InvalidArgument, RecordTooLarge, UsageError


def parsed(content: bytes, *, source: str = "f.jsonl", format: str = "auto", tags: tuple[str, ...] = ()) -> list[Line]:
    lines = RecordLines(source=source, format=format, tag_fields=tags)
    return [*lines.feed(content), *lines.finish()]


def test_json_lines_are_stored_as_they_are_and_tagged_by_field() -> None:
    content = b'{"user": 7,  "kind":"click"}\n\n  \n{"kind": null, "user": ["a", "b", "a"]}\r\n{"user": true}'
    assert parsed(content, tags=("user", "kind")) == [
        Line(b'{"user": 7,  "kind":"click"}', ["user/7", "kind/click"]),
        Line(b'{"kind": null, "user": ["a", "b", "a"]}', ["user/a", "user/b"]),
        Line(b'{"user": true}', ["user/true"]),
    ]


def test_csv_rows_are_stored_as_they_are_and_tagged_by_column() -> None:
    content = b'\xef\xbb\xbfcarrier,note,origin\r\nUA,plain,EWR\r\nAA,"two\r\nlines, ""quoted""",\r\n'
    assert parsed(content, source="f.csv", tags=("origin", "carrier")) == [
        Line(b"UA,plain,EWR", ["origin/EWR", "carrier/UA"]),
        Line(b'AA,"two\r\nlines, ""quoted""",', ["carrier/AA"]),
    ]


def test_text_is_any_lines() -> None:
    assert parsed(b"a,b\r\n\n\xff\n{", source="f.csv", format="text") == [
        Line(b"a,b", []),
        Line(b"\xff", []),
        Line(b"{", []),
    ]
    with pytest.raises(InvalidArgument, match="expected no tag fields with the format text, found user"):
        parsed(b"", format="text", tags=("user",))
    with pytest.raises(RecordTooLarge, match="line 1: expected a record of at most"):
        parsed(b"x" * (limits.RECORD_BYTES + 1), format="text")


@pytest.mark.parametrize(
    ("content", "source"), [(b"carrier\nUA\nAA", "f.csv"), (b'{"carrier":"UA"}\n{"carrier":"AA"}', "f.jsonl")]
)
def test_tags_of_all_records_come_first_and_once(content: bytes, source: str) -> None:
    lines = RecordLines(source=source, tags=("a", "carrier/UA", "a"), tag_fields=("carrier",))
    assert [line.tags for line in [*lines.feed(content), *lines.finish()]] == [
        ["a", "carrier/UA"],
        ["a", "carrier/UA", "carrier/AA"],
    ]
    with pytest.raises(InvalidArgument, match="expected at most 255 tags and tag fields, found 256"):
        RecordLines(source=source, tags=["t"], tag_fields=[str(number) for number in range(255)])


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_utf_16_is_refused(encoding: str) -> None:
    content = ("\ufeff" if encoding == "utf-16-be" else "") + "carrier\nUA\n"
    with pytest.raises(InvalidArgument, match=r"expected UTF-8 in f\.csv, found UTF-16; convert it: iconv"):
        parsed(content.encode(encoding), source="f.csv")


def test_format_follows_the_name_then_the_first_line() -> None:
    assert parsed(b'\n{"a": 1}\n', source="-") == [Line(b'{"a": 1}', [])]
    assert parsed(b"a,b\n1,2\n", source="X.CSV") == [Line(b"1,2", [])]
    with pytest.raises(UsageError, match=r"standard input.*Say --format jsonl, csv, or text"):
        parsed(b"a,b\n", source="-")
    with pytest.raises(InvalidArgument, match="expected a format of auto, jsonl, csv, text, found 'xml'"):
        RecordLines(source="-", format="xml")


@pytest.mark.parametrize(
    ("content", "source", "message"),
    [
        (b'{"a": 1}\n{"a": \n', "f.jsonl", r"f\.jsonl, line 2: expected a JSON value, found '\{\"a\": '"),
        (b'{"a": 1}\n' + b"[" * 100_000, "f.jsonl", r"f\.jsonl, line 2: expected a JSON value, found '\[+.*recursion"),
        (b"[1]\n", "f.jsonl", r"line 1: expected a JSON object with a, found a list"),
        (b'{"a": {"b": 1}}\n', "f.jsonl", r"line 1: .* in 'a', found a object; it cannot be a tag"),
        (b'{"a": "' + b"x" * 300 + b'"}', "f.jsonl", r"line 1: expected a tag of at most 255 bytes, found 302"),
        (b"a,b\n1,2\n\n1,2,3\n", "f.csv", r"f\.csv, line 4: expected 2 values as in the first row, found 3"),
        (b"carrier\n", "f.csv", r"has no column 'a'\. Its first row names carrier"),
        (b'a\n"x"y\n', "f.csv", r"line 2: expected a comma or the end of the row, found 'y'"),
        (b'a\nok\n"never\nends\n', "f.csv", r"for the row that begins in line 3, found the end of the file"),
        (b"a\n\xff\n", "f.csv", r"line 2: expected UTF-8 text in column 'a'"),
    ],
)
def test_a_wrong_line_is_named(content: bytes, source: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        parsed(content, source=source, tags=("a",))


def test_an_unknown_column_names_the_nearest() -> None:
    with pytest.raises(InvalidArgument, match=r"no column 'carier'; did you mean 'carrier'\?.*names carrier, origin"):
        parsed(b"carrier,origin\n", source="f.csv", tags=("carier",))


def test_a_record_over_the_limit_is_refused_also_without_a_line_end() -> None:
    with pytest.raises(RecordTooLarge, match=r"line 2: expected a record of at most 1048576 bytes"):
        parsed(b'1\n"' + b"x" * limits.RECORD_BYTES + b'"\n')
    lines = RecordLines(source="f.jsonl")
    with pytest.raises(RecordTooLarge, match="line 1"):
        for _ in range(20):
            assert list(lines.feed(b"x" * 100_000)) == []
    with pytest.raises(RecordTooLarge):
        parsed(b'a\n"' + b"\n" * (limits.RECORD_BYTES * 2), source="f.csv")


def test_too_many_tags_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="at most 255 tags, found 256"):
        parsed(json.dumps({"a": list(range(256))}).encode(), tags=("a",))


def test_it_counts_which_fields_gave_tags() -> None:
    lines = RecordLines(source="f.jsonl", tag_fields=("a", "b"))
    assert len(list(lines.feed(b'{"a": 1}\n{"a": 2}\n'))) == 2
    assert lines.field_counts == {"a": 2, "b": 0}
    assert (lines.records, lines.line_number) == (2, 2)


def test_batches_hand_out_all_that_came_before_a_fault() -> None:
    lines = RecordLines(source="f.jsonl")
    found: list[list[bytes]] = []
    with pytest.raises(BokiError, match="line 6"):
        for batch in batches(lines.feed(b"1\n2\n3\n4\n5\nx\n7\n"), records=2, data_bytes=100):
            found.append([line.data for line in batch])
    assert found == [[b"1", b"2"], [b"3", b"4"], [b"5"]]
    assert [len(batch) for batch in batches(iter([Line(b"xx", [])] * 5), records=9, data_bytes=4)] == [2, 2, 1]


_CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)


@given(st.lists(st.lists(_CELLS, min_size=2, max_size=2), max_size=8), st.integers(1, 9), st.booleans())
def test_csv_agrees_with_the_csv_module_at_any_chunk_size(rows: list[list[str]], size: int, quote_all: bool) -> None:
    out = io.StringIO()
    quoted = csv.writer(out, quoting=csv.QUOTE_ALL)
    (quoted if quote_all else csv.writer(out)).writerows([["a", "b"], *rows])
    content = out.getvalue().encode()
    lines = RecordLines(source="f.csv", tag_fields=("a", "b"))
    found: list[Line] = []
    for at in range(0, len(content), size):
        found += lines.feed(content[at : at + size])
    found += lines.finish()
    assert [line.tags for line in found] == [
        [f"{field}/{cell}" for field, cell in zip("ab", row, strict=True) if cell] for row in rows
    ]
    header = content.split(b"\r\n", 1)[0]
    assert b"".join(line + b"\r\n" for line in [header, *(line.data for line in found)]) == content


@given(
    st.lists(st.dictionaries(st.sampled_from("abc"), st.none() | st.integers() | st.text(max_size=5))),
    st.integers(1, 9),
)
def test_json_lines_come_back_at_any_chunk_size(values: list[dict[str, object]], size: int) -> None:
    content = b"".join(json.dumps(value).encode() + b"\n" for value in values)
    lines = RecordLines(source="-", format="jsonl", tag_fields=("a",))
    found: list[Line] = []
    for at in range(0, len(content), size):
        found += lines.feed(content[at : at + size])
    assert [json.loads(line.data) for line in [*found, *lines.finish()]] == values
