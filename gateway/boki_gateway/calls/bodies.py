"""Bodies of requests and answers: their types, and records to and from them. Pure.

The types are what is decoded, what is encoded, and what the OpenAPI document shows: there is no second description. A
field that a type does not have is refused by name. How books, tags and seqnums are written is in `names`.

Data of a record is `data`, base64, or `text`, which is sent as UTF-8. Answers carry `data`, or, when the request asks for
`encoding=text`, `text`; a record that is no UTF-8 then carries `data` all the same.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from boki import Gap, GapKind, Record
from boki_common import limits
from boki_common.errors import DECODE_FAULTS, InvalidArgument
from boki_gateway.calls import patterns
from boki_gateway.calls.names import name_text, parse_name, parse_number
from boki_gateway.errors import BodyTooLarge

T = TypeVar("T")

Encoding = Literal["base64", "text"]
ENCODINGS: Final[tuple[Encoding, ...]] = ("base64", "text")
BATCH_RECORDS: Final = limits.READ_RECORDS
"""Records of one batch append."""
BATCH_VALUES: Final = 32 * BATCH_RECORDS
"""JSON values of one batch append: records with about 30 tags each."""

Seqnum = Annotated[
    str, Meta(description="A seqnum, as text of decimal digits.", extra_json_schema={"pattern": "^[0-9]{1,20}$"})
]
SeqnumGiven = Annotated[
    Annotated[str, Meta(extra_json_schema=patterns.SEQNUM)]
    | Annotated[int, Meta(extra_json_schema=patterns.SEQNUM_NUMBER)],
    Meta(description="A seqnum: text of decimal digits, or an integer where that is exact."),
]
BoundGiven = Annotated[
    Annotated[str, Meta(extra_json_schema=patterns.BOUND)]
    | Annotated[int, Meta(extra_json_schema=patterns.BOUND_NUMBER)],
    Meta(description="A bound of seqnums: text of decimal digits, or an integer where that is exact."),
]
Tag = Annotated[str, Meta(description="The name of a tag; ~ and digits is a number, ~~ begins a name with ~.")]
TagGiven = Annotated[
    Annotated[str, Meta(extra_json_schema=patterns.TAG)] | Annotated[int, Meta(extra_json_schema=patterns.TAG_NUMBER)],
    Meta(description="The name of a tag, or its number: an integer, or ~ and digits."),
]
StreamGiven = Annotated[
    Annotated[str, Meta(extra_json_schema=patterns.STREAM)]
    | Annotated[int, Meta(extra_json_schema=patterns.STREAM_NUMBER)],
    Meta(description="The name of a tag, or its number: an integer, or ~ and digits; 0 is the whole book."),
]
StreamKey = Annotated[str, Meta(extra_json_schema=patterns.STREAM)]
Base64 = Annotated[str, Meta(description="Bytes in base64.", extra_json_schema=patterns.BASE64)]


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A body that a caller sends."""


class WithData(Request, frozen=True):
    """Either `data` or `text`."""

    data: Base64 | None = None
    text: Annotated[str, Meta(description="The data as text; it is stored as UTF-8.")] | None = None


class BatchRecord(WithData, frozen=True):
    """One record of a batch. Either `data` or `text`."""

    tags: Annotated[
        list[TagGiven],
        Meta(
            description="The streams that the record joins, each once; up to 255.",
            extra_json_schema={"maxItems": limits.RECORD_TAGS, "uniqueItems": True},
        ),
    ] = []


class AppendRequest(BatchRecord, frozen=True):
    """One record to append. Either `data` or `text`."""

    expect: Annotated[
        dict[StreamKey, SeqnumGiven | None],
        Meta(
            description="Append only if each of these streams (~0: the whole book) has no record newer than the seqnum, "
            "or none at all, ever, for null. Up to 256. A seqnum is one that the session has seen.",
            extra_json_schema={"maxProperties": limits.RECORD_EXPECTATIONS},
        ),
    ] = {}
    writer: (
        Annotated[
            str,
            Meta(
                description="A named writer; with `number` the append is applied once however often it is sent.",
                extra_json_schema=patterns.WRITER,
            ),
        ]
        | None
    ) = None
    number: (
        Annotated[
            int,
            Meta(description="The writer's number of this record: 1, 2, 3 … without holes.", ge=1, le=2**63 - 1),
        ]
        | None
    ) = None


class BatchRequest(Request, frozen=True):
    """Records to append, in order."""

    records: Annotated[
        list[BatchRecord],
        Meta(description=f"Up to {BATCH_RECORDS}.", extra_json_schema={"maxItems": BATCH_RECORDS}),
    ]


class PrevQuery(Request, frozen=True):
    """One stream, and where to look downwards from."""

    tag: StreamGiven | None = None
    at_most: BoundGiven | None = None


class PrevManyRequest(Request, frozen=True):
    """Streams whose last records are wanted, all of one moment."""

    queries: Annotated[
        list[PrevQuery],
        Meta(
            description=f"Up to {limits.READ_MANY_QUERIES}.", extra_json_schema={"maxItems": limits.READ_MANY_QUERIES}
        ),
    ]


class TrimPair(Request, frozen=True):
    """One stream, or the whole book without a tag."""

    before: Annotated[SeqnumGiven, Meta(description="The first seqnum to keep.")]
    tag: StreamGiven | None = None


class TrimRequest(Request, frozen=True):
    """What to drop, for everybody and for ever. Only what the session sees now: marks never reach into the future."""

    pairs: Annotated[
        list[TrimPair],
        Meta(
            description=f"1 to {limits.TRIM_PAIRS}.",
            extra_json_schema={"minItems": 1, "maxItems": limits.TRIM_PAIRS},
        ),
    ]
    forget: Annotated[
        bool,
        Meta(description="Also forget streams that are empty now and had their newest record over an hour ago."),
    ] = False


class AuxRequest(WithData, frozen=True):
    """Cached data to keep beside a record, up to 1 MiB. Either `data` or `text`."""


ONE_OF_TWO: Final[tuple[type[Request], ...]] = (BatchRecord, AppendRequest, AuxRequest)
"""Bodies with either `data` or `text`."""


class RecordBody(msgspec.Struct, frozen=True):
    """One record."""

    seqnum: Seqnum
    tags: list[Tag]
    book: Annotated[str, Meta(description="As it was asked for.")]
    time_ms: Annotated[int, Meta(description="When it was ordered: milliseconds since 1970 UTC.")]
    data: Base64 | UnsetType = UNSET
    text: Annotated[str, Meta(description="Instead of `data`, with encoding=text.")] | UnsetType = UNSET
    aux: Annotated[Base64, Meta(description="Cached data beside the record, when the engine has some.")] | UnsetType = (
        UNSET
    )


class GapBody(msgspec.Struct, frozen=True):
    """Records are missing here; whether there were any of the stream is not known."""

    kind: Annotated[Literal["trimmed", "lost"], Meta(description="lost: declared so by an administrator.")]
    first: Seqnum
    last: Annotated[Seqnum, Meta(description="Inclusive.")]


Position = Annotated[
    Seqnum | None,
    Meta(description="What the session has seen of the book's log: usable in `expect`. null: nothing yet."),
]


class PositionEvent(msgspec.Struct, frozen=True):
    """Where a stream of events begins."""

    position: Position


class AppendAnswer(msgspec.Struct, frozen=True):
    """The record is durable and ordered."""

    seqnum: Seqnum
    position: Position


class BatchAnswer(msgspec.Struct, frozen=True):
    """All records are durable and ordered."""

    seqnums: Annotated[list[Seqnum], Meta(description="In the order of the records.")]
    position: Position


class RecordAnswer(msgspec.Struct, frozen=True):
    """One record, or null when the stream has none there."""

    record: RecordBody | None
    position: Position


class RecordsAnswer(msgspec.Struct, frozen=True):
    """Records of a stream in order."""

    records: list[RecordBody]
    gaps: Annotated[list[GapBody], Meta(description="Where in the range read records are missing.")]
    next: Annotated[Seqnum, Meta(description="`start` of the request that continues this one.")]
    more: Annotated[bool, Meta(description="Whether that request may find records at once.")]
    position: Position


class PrevManyAnswer(msgspec.Struct, frozen=True):
    """One record or null per query, in the order of the queries."""

    records: list[RecordBody | None]
    position: Position


class TrimAnswer(msgspec.Struct, frozen=True):
    """It is trimmed: this session no longer sees it."""

    position: Position


class AuxAnswer(msgspec.Struct, frozen=True):
    """Best effort."""

    stored: Annotated[bool, Meta(description="Whether the engine took it; false when it has no such record.")]


class WriterAnswer(msgspec.Struct, frozen=True):
    """How far a named writer is."""

    writer: str
    last: Annotated[int, Meta(description="The last number that is decided; 0 before the first.")]


class SeekAnswer(msgspec.Struct, frozen=True):
    """Where to read from."""

    seqnum: Annotated[Seqnum, Meta(description="For `start` and `at_least`; perhaps of another book's record.")]
    position: Position


class HealthAnswer(msgspec.Struct, frozen=True):
    """Whether the gateway serves."""

    status: Literal["ok", "failing"]
    reasons: list[str]


def decode_body(data: bytes, kind: type[T]) -> T:
    """A JSON body. Raises InvalidArgument naming the place in it."""
    try:
        return msgspec.json.decode(data, type=kind)
    except DECODE_FAULTS as fault:
        raise InvalidArgument(_body_fault(kind, fault, data)) from fault


def decode_lines(data: bytes) -> BatchRequest:
    """Decode a body of one JSON record a line. Raises InvalidArgument naming the line, BodyTooLarge."""
    records: list[BatchRecord] = []
    for number, line in enumerate(data.split(b"\n", 2 * BATCH_RECORDS), 1):
        is_empty = not line.strip()
        if (number > 2 * BATCH_RECORDS and line) or (len(records) == BATCH_RECORDS and not is_empty):
            raise BodyTooLarge(
                f"expected at most {BATCH_RECORDS} lines of records, found more; send several batches",
                expected=BATCH_RECORDS,
            )
        if is_empty:
            continue
        try:
            records.append(msgspec.json.decode(line, type=BatchRecord))
        except DECODE_FAULTS as fault:
            raise InvalidArgument(f"line {number}: {_body_fault(BatchRecord, fault, line)}", line=number) from fault
    return BatchRequest(records)


def _body_fault(kind: type[Any], fault: Exception, data: bytes) -> str:
    if not data:
        return f"expected a JSON body ({kind.__name__}), found none"
    return f"expected a JSON body as /openapi.json describes {kind.__name__}, found: {fault}"


def data_of(record: WithData, where: str = "") -> bytes:
    """The bytes of a record to append; `where` it is in the body. Raises InvalidArgument."""
    if (record.data is None) == (record.text is None):
        found = "neither" if record.data is None else "both"
        raise InvalidArgument(f"{where}expected either `data` (base64) or `text`, found {found}")
    if record.text is not None:
        try:
            return record.text.encode()
        except UnicodeEncodeError as fault:
            raise InvalidArgument(f"{where}text: expected Unicode text, found {fault}") from fault
    assert record.data is not None
    try:
        return b64decode(record.data, validate=True)
    except (binascii.Error, ValueError) as fault:
        raise InvalidArgument(f"{where}data: expected base64 with its padding, found {fault}") from fault


def tags_of(record: BatchRecord) -> list[str | int]:
    """The tags of a record to append. Raises InvalidArgument."""
    return [parse_name(tag, "tags") for tag in record.tags]


def expectations_of(request: AppendRequest) -> dict[str | int, int | None] | None:
    """What an append expects; None when nothing. Raises InvalidArgument."""
    if not request.expect:
        return None
    return {
        parse_name(tag, "expect"): None if seqnum is None else parse_number(seqnum, f"expect[{tag!r}]")
        for tag, seqnum in request.expect.items()
    }


def writer_of(request: AppendRequest) -> tuple[str, int] | None:
    """The writer and the number of an append; None for the session's own. Raises InvalidArgument: one without the other."""
    if request.writer is None and request.number is None:
        return None
    if request.writer is None or request.number is None:
        found = "`number` only" if request.writer is None else "`writer` only"
        raise InvalidArgument(f"expected `writer` and `number`, or neither, found {found}")
    return request.writer, request.number


def trims_of(request: TrimRequest) -> list[tuple[str | int | None, int]]:
    """(tag, first seqnum to keep) of each pair. Raises InvalidArgument."""
    return [
        (
            None if pair.tag is None else parse_name(pair.tag, f"pairs[{index}].tag"),
            parse_number(pair.before, f"pairs[{index}].before"),
        )
        for index, pair in enumerate(request.pairs)
    ]


def batch_of(request: BatchRequest) -> list[tuple[bytes, list[str | int]]]:
    """Data and tags of each record. Raises InvalidArgument naming its index, BodyTooLarge."""
    if len(request.records) > BATCH_RECORDS:
        raise BodyTooLarge(
            f"expected at most {BATCH_RECORDS} records, found {len(request.records)}; send several batches",
            expected=BATCH_RECORDS,
            found=len(request.records),
        )
    return [(data_of(record, f"records[{index}]: "), tags_of(record)) for index, record in enumerate(request.records)]


def queries_of(request: PrevManyRequest) -> list[tuple[str | int | None, int | None]]:
    """(tag, at_most) of each query. Raises InvalidArgument."""
    return [
        (
            None if query.tag is None else parse_name(query.tag, f"queries[{index}].tag"),
            None if query.at_most is None else parse_number(query.at_most, f"queries[{index}].at_most"),
        )
        for index, query in enumerate(request.queries)
    ]


def record_body(record: Record, encoding: Encoding) -> RecordBody:
    """A record as it is answered."""
    tags = [name_text(tag) for tag in record.tags]
    aux = UNSET if record.aux_data is None else b64encode(record.aux_data).decode()
    data: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    if encoding == "text":
        try:
            text = record.data.decode()
        except UnicodeDecodeError:
            pass  # not swallowed: such a record carries its bytes
    if text is UNSET:
        data = b64encode(record.data).decode()
    return RecordBody(str(record.seqnum), tags, name_text(record.book), record.time_ms, data, text, aux)


def gap_body(gap: Gap) -> GapBody:
    """A gap as it is answered."""
    return GapBody("lost" if gap.kind == GapKind.LOST else "trimmed", str(gap.first), str(gap.last))
