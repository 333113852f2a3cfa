"""Checks and encodes what callers pass, before anything is numbered or sent. Pure.

An append that could be refused must not get a number: numbers are dense, so a refused one would be a hole that blocks its
writer (DESIGN §6.1). Everything an engine might object to is therefore refused here, each fault with its own message.

Encoded tags are kept: programs use few tag combinations, and hashing names is most of the cost of a small append. Only
combinations of names are kept, because 1, 1.0 and True are one dictionary key but not one tag.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from struct import Struct
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

import xxhash

from boki_common import limits
from boki_common.engine.engine_protocol import Consistency
from boki_common.errors import InvalidArgument, InvalidTag, RecordTooLarge
from boki_common.ids import ALL_RECORDS, SEQNUM_MAX, U64_MAX, book_id, tag_id
from boki_common.ids import seqnum as seqnum_of
from boki_common.records.batch_layout import EXPECTATION_ROW
from boki_common.records.tag_names import pack_names

Tag: TypeAlias = str | int
"""A tag as callers give it: a name, or a number from 1 to 2**64-2."""
Data: TypeAlias = bytes | bytearray | memoryview
Expect: TypeAlias = Mapping[Tag, int | None]
"""Expectations of an append: {tag: newest seqnum it may have, or None for none at all, ever}."""
ConsistencyName: TypeAlias = Literal["session", "linearizable", "any"]
TrimPairs: TypeAlias = Sequence[tuple[Tag | None, int]]
"""What to trim: (tag, first seqnum to keep); tag None or 0 is the whole book."""

BEFORE_FIRST: Final = seqnum_of(1, 0) - 1
"""Nothing ever lies at or below it: the first term is 1."""
TAG_CACHE_COMBINATIONS: Final = 4_096
"""Combinations of tag names whose encoding a process keeps; and names expected something of whose numbers it keeps."""

ROW_BYTES: Final = 14
"""Counted for what surrounds a record in a frame: its length, number of tags and checksum."""
_U64: Final = Struct("<Q")
_CONSISTENCIES: Final[dict[str, Consistency]] = {
    "session": Consistency.SESSION,
    "linearizable": Consistency.LINEARIZABLE,
    "any": Consistency.ANY,
}


class EncodedTags(NamedTuple):
    """The tags of a record as they travel."""

    packed: bytes
    """u64s, in the order given."""
    tag_count: int
    names: bytes
    """What opens the payload: the names of the tags that have one."""
    overhead_bytes: int
    """Bytes that the tags with their names, and what surrounds them, take in a frame."""


_cache: dict[tuple[Tag, ...], EncodedTags] = {}


def encode_tags(tags: Sequence[Tag]) -> EncodedTags:
    """Checks and encodes the tags of one record. Raises InvalidArgument: not a list or tuple; InvalidTag: a tag is no tag, is
    given twice, or there are too many."""
    try:
        encoded = _cache.get(tuple(tags)) if type(tags) in (list, tuple) else None
    except TypeError:  # an unhashable tag: it gets its message below
        encoded = None
    return _encode_tags(tags) if encoded is None else encoded


def _check_sequence(tags: object) -> None:
    if isinstance(tags, (str, bytes)) or not isinstance(tags, Sequence):
        raise InvalidArgument(
            f"expected tags as a list or tuple of names and numbers, found {type(tags).__name__}"
            + (f"; write tags=[{tags[:40]!r}]" if isinstance(tags, str) else "")
        )


def _encode_tags(tags: Sequence[Tag]) -> EncodedTags:
    _check_sequence(tags)
    key = tuple(tags)
    if len(key) > limits.RECORD_TAGS:
        raise InvalidTag(f"expected at most {limits.RECORD_TAGS} tags, found {len(key)}", found=len(key))
    numbers: dict[int, Tag] = {}
    names: list[tuple[int, bytes]] = []
    for index, tag in enumerate(key):
        number = tag_number(tag)
        if number in numbers:
            raise InvalidTag(f"a record joins a stream once: tag {tag!r} is given twice", found=tag)
        numbers[number] = tag
        if isinstance(tag, str):
            names.append((index, tag.encode()))
    packed = b"".join(map(_U64.pack, numbers))
    packed_names = pack_names(names)
    encoded = EncodedTags(packed, len(key), packed_names, ROW_BYTES + len(packed) + len(packed_names))
    if len(names) == len(key):
        if len(_cache) >= TAG_CACHE_COMBINATIONS:
            del _cache[next(iter(_cache))]
        _cache[key] = encoded
    return encoded


def tag_number(tag: Tag) -> int:
    """The number of a tag that a record may carry. Raises InvalidTag."""
    try:
        return tag_id(tag)
    except UnicodeEncodeError as fault:
        raise InvalidTag(f"a tag name must be encodable as UTF-8: {fault}") from fault


_number_of_name: Final = lru_cache(TAG_CACHE_COMBINATIONS)(tag_number)
"""Only for names: 1, 1.0 and True are one key."""


def stream_number(tag: Tag | None) -> int:
    """The number of a stream to read or to expect something of: None and 0 are every record of the book."""
    if tag is None or (type(tag) is int and tag == ALL_RECORDS):
        return ALL_RECORDS
    try:
        return tag_id(tag)
    except UnicodeEncodeError:
        return tag_number(tag)


def as_bytes(data: Data) -> bytes:
    """The record's data, immutable: it is kept until the record is decided."""
    if type(data) is bytes:
        return data
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    hint = "; encode it first: text.encode()" if isinstance(data, str) else ""
    raise InvalidArgument(f"expected the data of a record as bytes, found {type(data).__name__}{hint}")


def taken(data: Data, tags: Sequence[Tag], expect: Expect | None) -> tuple[Data, Sequence[Tag], Expect | None]:
    """Return the arguments of a call that runs later, so that the caller may change its buffer, list or dict at once. What has none of
    these types is refused when the call runs, as ever."""
    return (
        bytes(data) if isinstance(data, (bytearray, memoryview)) else data,
        tuple(tags) if isinstance(tags, list) else tags,
        dict(expect) if isinstance(expect, dict) else expect,
    )


class Expectations(NamedTuple):
    """The expectations of one record: `pairs` as they travel, `keys` to name the tags in a Conflict."""

    pairs: tuple[tuple[int, int], ...]
    keys: Mapping[int, Tag]
    highest: int = 0
    """The highest seqnum expected; 0 when all expect none."""

    @property
    def size(self) -> int:
        """Bytes that they take in a frame."""
        return len(self.pairs) * EXPECTATION_ROW.size


Content: TypeAlias = tuple[EncodedTags, bytes, Expectations]
"""What a record says, whatever its number."""
NO_EXPECTATIONS: Final = Expectations((), {})
_make_expectations: Final = cast(Callable[[tuple[Any, ...]], Expectations], partial(tuple.__new__, Expectations))
"""Without a frame of Python."""


def encode_expectations(expect: Expect) -> Expectations:
    """Checks and encodes expectations; whether their seqnums are in the session's past is the caller's to check. Raises
    InvalidArgument: no mapping, too many, two keys that are one stream, or a value that is no seqnum."""
    if type(expect) is dict and len(expect) == 1:  # nearly always: one stream, by its name
        ((tag, newest),) = expect.items()
        if type(tag) is str and type(newest) is int and 0 < newest <= SEQNUM_MAX:
            number = _number_of_name(tag)
            return _make_expectations((((number, newest),), {number: tag}, newest))
    if type(expect) is not dict and not isinstance(expect, Mapping):
        raise InvalidArgument(f"expected expect={{tag: seqnum or None}}, found {type(expect).__name__}")
    if len(expect) > limits.RECORD_EXPECTATIONS:
        raise InvalidArgument(
            f"expected at most {limits.RECORD_EXPECTATIONS} expectations, found {len(expect)}", found=len(expect)
        )
    keys: dict[int, Tag] = {}
    pairs = []
    for tag, newest in expect.items():
        number = _number_of_name(tag) if type(tag) is str else stream_number(tag)
        if tag is None or number in keys:
            raise InvalidArgument(f"expect names a stream once, by a name or a number (0 = every record): {tag!r}")
        keys[number] = tag
        if newest is None:
            newest = 0
        elif type(newest) is not int or not 0 < newest <= SEQNUM_MAX:
            check_seqnum(newest, f"expect[{tag!r}]")
        pairs.append((number, newest))
    return Expectations(tuple(pairs), keys, max((newest for _, newest in pairs), default=0))


def check_seqnum(value: int, name: str) -> int:
    """A seqnum: 1 to 2**63-1. Raises InvalidArgument naming the argument."""
    if type(value) is not int:
        raise InvalidArgument(f"expected {name} to be a seqnum, found {type(value).__name__}")
    if not 0 < value <= SEQNUM_MAX:
        raise InvalidArgument(f"expected {name} to be a seqnum from 1 to 2**63-1, found {value}", found=value)
    return value


def check_bound(value: int | None, name: str, default: int) -> int:
    """A bound of a range of seqnums, clipped to what seqnums can be. Raises InvalidArgument naming the argument."""
    if value is None:
        return default
    if type(value) is not int:
        raise InvalidArgument(f"expected {name} to be a seqnum or None, found {type(value).__name__}")
    if not 0 <= value <= U64_MAX:
        raise InvalidArgument(f"expected {name} from 0 to 2**64-1, found {value}", found=value)
    return min(value, SEQNUM_MAX + 1)


def check_reached(at_most: int, position: int) -> None:
    """What is read at a place has one answer only where nothing more can come at or below it. Raises InvalidArgument."""
    if max(position, BEFORE_FIRST) < at_most < SEQNUM_MAX:
        raise InvalidArgument(
            f"expected at_most in what this session has seen (up to {position}), found {at_most}: what lies below it may change; use "
            "the seqnum of a record, `await book.now()`, or None for the newest there is",
            expected=position,
            found=at_most,
        )


def at_snapshot(consistency: Consistency, at_most: int, seen: int) -> Consistency:
    """What is read at a snapshot of the session, whose position is `seen`, has to have reached the engine."""
    return Consistency.SESSION if consistency is Consistency.ANY and at_most <= seen else consistency


def check_flag(value: bool, name: str) -> bool:
    """Raises InvalidArgument naming the argument."""
    if type(value) is not bool:
        raise InvalidArgument(f"expected {name} to be True or False, found {value!r}")
    return value


def check_limit(value: int | None) -> int:
    """How many records are wanted, at most. Raises InvalidArgument."""
    if value is None:
        return U64_MAX
    if type(value) is not int or value < 1:
        raise InvalidArgument(f"expected limit to be a number of records from 1 on or None, found {value!r}")
    return value


def check_read_tags(tags: Sequence[Tag], tag: Tag | None) -> Sequence[Tag]:
    """The tags of a read of several; each is checked by whoever takes it. Raises InvalidArgument."""
    if tag is not None:
        raise InvalidArgument("expected read(tag) or read(tags=[…]), one of the two")
    if isinstance(tags, (str, bytes)) or not isinstance(tags, Sequence):
        raise InvalidArgument(f"expected a list or tuple of tags to read, found {type(tags).__name__}")
    if len(tags) > limits.READ_TAGS:
        raise InvalidArgument(f"expected at most {limits.READ_TAGS} tags to read, found {len(tags)}", found=len(tags))
    return tags


def check_queries(queries: Sequence[tuple[Tag | None, int | None]]) -> tuple[list[Tag | None], list[tuple[int, int]]]:
    """The tags of (tag, at_most) pairs, and the pairs by numbers. Raises InvalidArgument, InvalidTag."""
    if isinstance(queries, (str, bytes)) or not isinstance(queries, Sequence):
        raise InvalidArgument(f"expected a list of (tag, at_most) pairs, found {type(queries).__name__}")
    if len(queries) > limits.READ_MANY_QUERIES:
        raise InvalidArgument(
            f"expected at most {limits.READ_MANY_QUERIES} queries, found {len(queries)}", found=len(queries)
        )
    tags: list[Tag | None] = []
    pairs: list[tuple[int, int]] = []
    for query in queries:
        if not isinstance(query, (tuple, list)) or len(query) != 2:
            raise InvalidArgument(f"expected (tag, at_most) pairs, found {query!r:.80}")
        tag, at_most = query
        tags.append(tag)
        pairs.append((stream_number(tag), check_bound(at_most, "at_most", SEQNUM_MAX)))
    return tags, pairs


def check_consistency(name: str) -> Consistency:
    """Raises InvalidArgument naming the choices."""
    consistency = _CONSISTENCIES.get(name) if isinstance(name, str) else None
    if consistency is None:
        raise InvalidArgument(f"expected consistency to be one of {sorted(_CONSISTENCIES)}, found {name!r}", found=name)
    return consistency


def encode_trim(pairs: TrimPairs | None, before: int | None, tag: Tag | None) -> dict[int, int]:
    """Checks what to trim: {stream: first seqnum to keep}, the highest where a stream is given twice. Raises InvalidArgument:
    neither pairs nor `before`, or both; no pair, or more than 4,096; a `before` that is no seqnum."""
    if (pairs is None) == (before is None) or (pairs is not None and tag is not None):
        raise InvalidArgument("expected trim(before=seqnum, tag=tag) or trim([(tag, seqnum), …]), one of the two")
    if pairs is None:
        assert before is not None
        pairs = [(tag, before)]
    if isinstance(pairs, (str, bytes)) or not isinstance(pairs, Sequence):
        raise InvalidArgument(f"expected a list of (tag, seqnum) pairs to trim, found {type(pairs).__name__}")
    if not 0 < len(pairs) <= limits.TRIM_PAIRS:
        raise InvalidArgument(f"expected 1 to {limits.TRIM_PAIRS} pairs to trim, found {len(pairs)}", found=len(pairs))
    marks: dict[int, int] = {}
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InvalidArgument(f"expected (tag, seqnum) pairs to trim, found {pair!r:.80}")
        number = stream_number(pair[0])
        marks[number] = max(marks.get(number, 0), check_seqnum(pair[1], f"before of tag {pair[0]!r}"))
    return marks


def check_aux(data: Data) -> bytes:
    """Aux data of a record. Raises InvalidArgument, RecordTooLarge."""
    checked = as_bytes(data)
    if len(checked) > limits.AUX_BYTES:
        raise RecordTooLarge(
            f"expected at most {limits.AUX_BYTES} bytes of aux data, found {len(checked)}",
            expected=limits.AUX_BYTES,
            found=len(checked),
        )
    return checked


def book_number(name: str | int) -> int:
    """The number of a book: itself, or xxh3-64 of its name. Raises InvalidArgument."""
    try:
        return book_id(name)
    except UnicodeEncodeError as fault:
        raise InvalidArgument(f"a book name must be encodable as UTF-8: {fault}") from fault


def writer_id(name: str) -> bytes:
    """The id of a named writer: xxh3-128 of its name. Raises InvalidArgument."""
    if not isinstance(name, str):
        raise InvalidArgument(f"expected the name of a writer, found {type(name).__name__}")
    try:
        encoded = name.encode()
    except UnicodeEncodeError as fault:
        raise InvalidArgument(f"a writer's name must be encodable as UTF-8: {fault}") from fault
    if not 0 < len(encoded) <= limits.TAG_NAME_BYTES:
        raise InvalidArgument(
            f"expected a writer's name of 1 to {limits.TAG_NAME_BYTES} bytes, found {len(encoded)}", found=len(encoded)
        )
    return xxhash.xxh3_128_digest(encoded)


def check_writer(writer: tuple[str, int]) -> tuple[str, int]:
    """(name of a writer, number). Raises InvalidArgument."""
    if not isinstance(writer, (tuple, list)) or len(writer) != 2:
        raise InvalidArgument(f"expected writer=(name, number), found {writer!r:.80}")
    name, number = writer
    writer_id(name)
    if type(number) is not int or not 0 < number < 2**63:
        raise InvalidArgument(f"expected a number from 1 on in writer=(name, number), found {number!r:.40}")
    return name, number


def check_time_ms(value: int) -> int:
    """Milliseconds since 1970. Raises InvalidArgument."""
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise InvalidArgument(f"expected a time in milliseconds since 1970 UTC, found {value!r:.40}")
    return value


def check_seconds(value: float | None, name: str, default: float) -> float:
    """A duration in seconds, not negative; infinity is allowed. Raises InvalidArgument naming the argument."""
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidArgument(f"expected {name} in seconds, found {type(value).__name__}")
    if math.isnan(value) or value < 0:
        raise InvalidArgument(f"expected {name} to be 0 or more seconds, found {value}", found=value)
    return float(value)


NO_TAGS: Final = encode_tags(())


def encode_record(data: Data, tags: Sequence[Tag], expect: Expect | None) -> Content:
    """Checks and encodes one record. Raises InvalidArgument, InvalidTag, RecordTooLarge."""
    encoded = NO_TAGS if tags == () else encode_tags(tags)
    checked = data if type(data) is bytes else as_bytes(data)
    if len(checked) > limits.RECORD_BYTES:
        raise RecordTooLarge(
            f"expected at most {limits.RECORD_BYTES} bytes of data in a record, found {len(checked)}; split it, or append a "
            "reference to where it is stored",
            expected=limits.RECORD_BYTES,
            found=len(checked),
        )
    return encoded, checked, NO_EXPECTATIONS if expect is None else encode_expectations(expect)


def encode_many(records: Iterable[tuple[Data, Sequence[Tag]]]) -> list[tuple[EncodedTags, bytes]]:
    """Checks and encodes the records of an `append_many`, all of them before the first is numbered. Raises InvalidArgument:
    with the index of the record at fault as its fact `index`."""
    encoded: list[tuple[EncodedTags, bytes]] = []
    if not isinstance(records, Iterable) or isinstance(records, (str, bytes, bytearray, memoryview)):
        raise InvalidArgument(f"expected a list of (data, tags) pairs, found {type(records).__name__}")
    cached, limit = _cache.get, limits.RECORD_BYTES
    for index, record in enumerate(records):
        try:
            if type(record) is tuple and len(record) == 2 and type(record[0]) is bytes and type(record[1]) is tuple:
                try:
                    known = cached(record[1])  # the common case: tags that were used before
                except TypeError:  # an unhashable tag: it gets its message below
                    known = None
                if known is not None and len(record[0]) <= limit:
                    encoded.append((known, record[0]))
                    continue
            if not isinstance(record, (tuple, list)) or len(record) != 2:
                raise InvalidArgument(f"expected a (data, tags) pair, found {type(record).__name__}")
            tags, data, _ = encode_record(*record, expect=None)
            encoded.append((tags, data))
        except InvalidArgument as fault:
            facts = {**fault.facts, "index": index}
            raise type(fault)(f"in record {index}: {fault}", **facts) from fault
    return encoded


def carries(tag: Tag | None, tags: Sequence[Tag]) -> bool:
    """Whether a read of stream `tag` returns a record with these tags: a read by name is filtered by the name."""
    return not isinstance(tag, str) or tag in tags
