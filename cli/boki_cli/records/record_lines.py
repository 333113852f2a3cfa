"""Turns the bytes of a file into records: one record a line, tagged by the values of its fields.

    JSON lines   the record is the line, byte for byte, without its line ending; a field is a member of its object
    CSV          the record is the row, byte for byte, without its line ending; a field is a column named by the first row,
                 which is no record. Quoted values may span lines (RFC 4180).
    text         the record is the line, whatever it is; it has no fields

A tag is `FIELD/value`: text as it is, numbers and booleans as the file spells them in JSON, one tag per element of a
list; a field that is absent, null or empty gives none. Blank lines are skipped.

Rules: a wrong line raises with the source and its number, and what came before it was handed out; nothing is guessed
silently. Works on chunks, so it holds one chunk and one unfinished line. Pure: it reads no file.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from boki_common import limits
from boki_common.errors import DECODE_FAULTS, BokiError, InvalidArgument, RecordTooLarge, UsageError

FORMATS: Final = ("auto", "jsonl", "csv", "text")
BOM: Final = b"\xef\xbb\xbf"
UTF16_BOMS: Final = (b"\xff\xfe", b"\xfe\xff")
LINE_BYTES: Final = limits.RECORD_BYTES + limits.KIB
"""A line that reaches this length without an end is refused, whatever follows."""
COLUMN_TAGS: Final = 65_536
"""Tags kept per column: most columns worth a tag have few values, and making a tag is most of the work of a row."""

LISTED: Final = 20
"""Names of fields that a message lists."""

_JSON_SUFFIXES: Final = (".jsonl", ".ndjson", ".json")
_CSV_SUFFIXES: Final = (".csv",)
_CSV_VALUE: Final = re.compile(rb'"([^"]*(?:""[^"]*)*)"|([^",]*)')


class Line(NamedTuple):
    data: bytes
    tags: list[str]


class _Column(NamedTuple):
    """A column of a CSV file whose values become tags, and the tags it gave lately."""

    field: str
    place: int
    tags: dict[bytes, str]


class RecordLines:
    """Feeds on chunks of a file, hands out its records.

    Args:
        source: the file's name, for messages and, with format `auto`, for its suffix; `-` is standard input.
        format: one of `FORMATS`; `auto` goes by the suffix, else by the first line.
        tags: what every record is tagged with.
        tag_fields: names of the fields that become tags.

    Attributes:
        line_number: lines consumed so far.
        records: records handed out so far.
        field_counts: how many records gave at least one tag, by field.
    """

    def __init__(
        self, *, source: str, format: str = "auto", tags: Sequence[str] = (), tag_fields: Sequence[str] = ()
    ) -> None:
        if format not in FORMATS:
            raise InvalidArgument(f"expected a format of {', '.join(FORMATS)}, found {format!r}", found=format)
        if len(tags) + len(tag_fields) > limits.RECORD_TAGS:
            found = len(tags) + len(tag_fields)
            raise InvalidArgument(f"expected at most {limits.RECORD_TAGS} tags and tag fields, found {found}")
        self.source = "standard input" if source == "-" else source
        self.line_number = 0
        self.records = 0
        self.field_counts = dict.fromkeys(tag_fields, 0)
        self._format = _format_by_name(source) if format == "auto" else format
        self._tag_fields = list(self.field_counts)
        if self._format == "text" and self._tag_fields:
            raise InvalidArgument(f"expected no tag fields with the format text, found {_listed(self._tag_fields)}")
        self._tags = list(dict.fromkeys(tags))
        self._unfinished = b""
        self._row: list[bytes] = []
        self._row_line = self._row_quotes = self._row_bytes = 0
        self._columns: list[_Column] | None = None
        self._column_count = 0
        self._started = False

    def feed(self, chunk: bytes) -> Iterator[Line]:
        """The records whose lines end in this chunk. Consume it before the next call. Raises InvalidArgument, RecordTooLarge: a
        line is wrong; its number is in the message and in `line_number`."""
        if not self._started:
            chunk = self._unfinished + chunk
            if len(chunk) < len(BOM) and BOM.startswith(chunk):
                self._unfinished = chunk
                return iter(())
            self._unfinished = b""
            if chunk.startswith(UTF16_BOMS) and self._format != "text":
                raise InvalidArgument(
                    f"expected UTF-8 in {self.source}, found UTF-16; convert it: iconv -f UTF-16 -t UTF-8"
                )
            chunk = chunk.removeprefix(BOM)
            self._started = True
        lines = (self._unfinished + chunk).split(b"\n")
        self._unfinished = lines.pop()
        return self._parse(lines, check_length=True)

    def finish(self) -> Iterator[Line]:
        """The record of a last line without an end, if any. Raises as `feed` does."""
        rest, self._unfinished = self._unfinished, b""
        yield from self._parse([rest] if rest else [], check_length=False)
        if self._row:
            raise self._wrong(
                f"expected a closing quotation mark for the row that begins in line {self._row_line}, found the end of the file"
            )

    def _parse(self, lines: Iterable[bytes], *, check_length: bool) -> Iterator[Line]:
        for line in lines:
            self.line_number += 1
            if not self._row and not line.strip():
                continue
            record = self._record(line)
            if record is not None:
                self.records += 1
                yield record
        if check_length and len(self._unfinished) > LINE_BYTES:
            self.line_number += 1
            raise self._too_large(len(self._unfinished))

    def _record(self, line: bytes) -> Line | None:
        if self._format == "auto":
            self._format = self._format_by_line(line)
        if self._format == "csv":
            return self._csv_record(line)
        line = line.removesuffix(b"\r")
        if self._format == "text":
            self._check_length(line)
            return Line(line, self._tags)
        try:
            value = msgspec.json.decode(line)
        except DECODE_FAULTS as fault:
            raise self._wrong(f"expected a JSON value, found {_excerpt(line)}: {fault}") from None
        self._check_length(line)
        return Line(line, self._json_tags(value))

    def _json_tags(self, value: Any) -> list[str]:
        if not self._tag_fields:
            return self._tags
        if not isinstance(value, dict):
            raise self._wrong(f"expected a JSON object with {_listed(self._tag_fields)}, found a {_kind(value)}")
        tags = self._tags.copy()
        for field in self._tag_fields:
            values = value.get(field)
            found = [
                f"{field}/{text}"
                for text in (self._text(field, item) for item in (values if isinstance(values, list) else [values]))
                if text
            ]
            if found:
                self.field_counts[field] += 1
                tags.extend(found)
        return self._checked(tags)

    def _text(self, field: str, value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, str):
            return value
        if isinstance(value, (bool, int, float)):
            return msgspec.json.encode(value).decode()
        raise self._wrong(
            f"expected text, a number, true, false, null or a list of these in {field!r}, found a {_kind(value)}; "
            f"it cannot be a tag"
        )

    def _csv_record(self, line: bytes) -> Line | None:
        if self._row or b'"' in line:
            if not self._row:
                self._row_line, self._row_quotes, self._row_bytes = self.line_number, 0, 0
            self._row.append(line)
            self._row_quotes += line.count(b'"')
            self._row_bytes += len(line) + 1
            if self._row_bytes > LINE_BYTES:
                raise self._too_large(self._row_bytes)
            if self._row_quotes % 2:
                return None
            line = b"\n".join(self._row).removesuffix(b"\r")
            self._row = []
            values = self._quoted_values(line)
        else:
            line = line.removesuffix(b"\r")
            values = line.split(b",")
        if self._columns is None:
            self._columns = self._header(values)
            self._column_count = len(values)
            return None
        if len(values) != self._column_count:
            raise self._wrong(f"expected {self._column_count} values as in the first row, found {len(values)}")
        self._check_length(line)
        tags = self._tags.copy()
        for column in self._columns:
            value = values[column.place]
            if value:
                tags.append(column.tags.get(value) or self._csv_tag(column, value))
                self.field_counts[column.field] += 1
        return Line(line, self._checked(tags) if self._tags else tags)

    def _csv_tag(self, column: _Column, value: bytes) -> str:
        try:
            tag = f"{column.field}/{value.decode()}"
        except UnicodeDecodeError:
            raise self._wrong(f"expected UTF-8 text in column {column.field!r}, found {_excerpt(value)}") from None
        self._checked([tag])
        if len(column.tags) >= COLUMN_TAGS:
            column.tags.clear()
        column.tags[value] = tag
        return tag

    def _quoted_values(self, row: bytes) -> list[bytes]:
        values = []
        at = 0
        while True:
            match = _CSV_VALUE.match(row, at)
            assert match is not None  # the pattern matches the empty string
            quoted, plain = match.groups()
            values.append(plain if quoted is None else quoted.replace(b'""', b'"'))
            at = match.end() + 1
            if at > len(row):
                return values
            if row[at - 1 : at] != b",":
                raise self._wrong(f"expected a comma or the end of the row, found {_excerpt(row[at - 1 :])}")

    def _header(self, values: list[bytes]) -> list[_Column]:
        names = [value.decode(errors="replace").strip() for value in values]
        missing = [field for field in self._tag_fields if field not in names]
        if missing:
            near = difflib.get_close_matches(missing[0], names, n=1)
            raise InvalidArgument(
                f"{self.source} has no column {missing[0]!r}{f'; did you mean {near[0]!r}?' if near else '.'} "
                f"Its first row names {_listed(names)}",
                found=names,
            )
        return [_Column(field, names.index(field), {}) for field in self._tag_fields]

    def _checked(self, tags: list[str]) -> list[str]:
        if len(tags) > 1:
            tags = list(dict.fromkeys(tags))
        if len(tags) > limits.RECORD_TAGS:
            raise self._wrong(f"expected at most {limits.RECORD_TAGS} tags, found {len(tags)}")
        for tag in tags:
            if len(tag) > limits.TAG_NAME_BYTES // 4 and len(tag.encode()) > limits.TAG_NAME_BYTES:
                raise self._wrong(
                    f"expected a tag of at most {limits.TAG_NAME_BYTES} bytes, found {len(tag.encode())}: {tag[:40]}…"
                )
        return tags

    def _check_length(self, line: bytes) -> None:
        if len(line) > limits.RECORD_BYTES:
            raise self._too_large(len(line))

    def _format_by_line(self, line: bytes) -> str:
        if line.lstrip()[:1] in (b"{", b"["):
            return "jsonl"
        raise UsageError(
            f"cannot tell whether {self.source} is JSON lines or CSV: its name says nothing and its first line is "
            f"{_excerpt(line)}. Say --format jsonl, csv, or text (lines of anything)"
        )

    def _wrong(self, what: str) -> InvalidArgument:
        return InvalidArgument(f"{self.source}, line {self.line_number}: {what}", line_number=self.line_number)

    def _too_large(self, found: int) -> RecordTooLarge:
        return RecordTooLarge(
            f"{self.source}, line {self.line_number}: expected a record of at most {limits.RECORD_BYTES} bytes, found "
            f"{found} or more. Split it, or keep the large part elsewhere and its address in the record",
            line_number=self.line_number,
            found=found,
        )


def batches(lines: Iterable[Line], *, records: int, data_bytes: int) -> Iterator[list[Line]]:
    """Groups records into batches of at most `records`, closed once they hold `data_bytes`.

    What `lines` raises is raised after everything before it was handed out.
    """
    batch: list[Line] = []
    size = 0
    fault: BokiError | None = None
    try:
        for line in lines:
            batch.append(line)
            size += len(line.data)
            if len(batch) == records or size >= data_bytes:
                yield batch
                batch, size = [], 0
    except BokiError as error:
        fault = error
    if batch:
        yield batch
    if fault is not None:
        raise fault


def _format_by_name(source: str) -> str:
    lower = source.lower()
    if lower.endswith(_JSON_SUFFIXES):
        return "jsonl"
    return "csv" if lower.endswith(_CSV_SUFFIXES) else "auto"


def _excerpt(line: bytes) -> str:
    text = line[:40].decode(errors="replace")
    return repr(text) + ("…" if len(line) > 40 else "")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:LISTED]) + (f" and {len(names) - LISTED} more" if len(names) > LISTED else "")


def _kind(value: Any) -> str:
    names = {dict: "object", list: "list", str: "text", bool: "boolean", int: "number", float: "number"}
    return names.get(type(value), "null")
