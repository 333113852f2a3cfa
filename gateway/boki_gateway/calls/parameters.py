"""What requests say in paths, queries and headers: each parameter with its meaning, its schema and its parser. Pure.

    asked = parse([BOOK, TAG, LIMIT], path={"book": "orders"}, query={"limit": "10"})
    asked.book, asked.tag, asked.limit                   # "orders", None, 10

A query that names an unknown parameter is refused: a misspelt `at_lest=5` must not read from the beginning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast
from urllib.parse import unquote_to_bytes

from boki_common import limits
from boki_common.errors import InvalidArgument
from boki_gateway.calls import patterns
from boki_gateway.calls.bodies import ENCODINGS, Encoding
from boki_gateway.calls.names import is_number, parse_name

Consistency = Literal["session", "linearizable", "any"]
CONSISTENCIES: Final[tuple[Consistency, ...]] = ("session", "linearizable", "any")
WAIT_S: Final = limits.READ_WAIT_MS / 1000
"""The longest a request waits for a record; a client repeats it."""
PAGE_RECORDS: Final = 100
"""Records of a page when none are asked for."""


@dataclass(slots=True)
class Asked:
    """The parameters of one request; a field keeps its default when the request does not give it."""

    book: str | int = ""
    writer: str = ""
    time_ms: int = 0
    seqnum: int = 0
    tag: str | int | None = None
    start: int | None = None
    stop: int | None = None
    at_least: int | None = None
    at_most: int | None = None
    limit: int = PAGE_RECORDS
    wait: float | None = None
    consistency: Consistency = "session"
    encoding: Encoding = "base64"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. `name` is a field of `Asked`."""

    name: str
    place: Literal["path", "query"]
    meaning: str
    schema: Mapping[str, Any]
    parse: Callable[[str], object]


def check_target(target: str) -> None:
    """What a request names is UTF-8, percent-encoded: other bytes would be read as the names of other books and tags. `target`:
    path and query as they were sent. Raises InvalidArgument: they are not."""
    try:
        unquote_to_bytes(target).decode()
    except UnicodeError:
        raise InvalidArgument(
            f"expected UTF-8, percent-encoded, in the URL, found {target!r:.200}", found=ascii(target)[:200]
        ) from None


def parse(known: Sequence[Parameter], *, path: Mapping[str, str], query: Iterable[tuple[str, str]]) -> Asked:
    """What a request asks. Raises InvalidArgument: a parameter is unknown, given twice, or cannot be read."""
    asked = Asked()
    in_query = {parameter.name: parameter for parameter in known if parameter.place == "query"}
    seen: set[str] = set()
    for name, text in query:
        parameter = in_query.get(name)
        if parameter is None:
            names = ", ".join(in_query) or "none"
            raise InvalidArgument(f"expected the parameters {names}, found {name!r:.80}", found=name[:80])
        if name in seen:
            raise InvalidArgument(f"{name}: expected once, found twice")
        seen.add(name)
        setattr(asked, name, parameter.parse(text))
    for parameter in known:
        if parameter.place == "path":
            setattr(asked, parameter.name, parameter.parse(path[parameter.name]))
    return asked


def _seqnum(name: str) -> Callable[[str], int]:
    def parse_seqnum(text: str) -> int:
        if is_number(text):
            return int(text)
        raise InvalidArgument(f"{name}: expected a seqnum in decimal digits, found {text!r:.80}", found=text[:80])

    return parse_seqnum


def _limit(text: str) -> int:
    if is_number(text) and 1 <= int(text) <= limits.READ_RECORDS:
        return int(text)
    raise InvalidArgument(f"limit: expected 1 to {limits.READ_RECORDS}, found {text!r:.80}", found=text[:80])


def _wait(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if 0 <= seconds <= WAIT_S:
        return seconds
    raise InvalidArgument(f"wait: expected 0 to {WAIT_S:g} seconds, found {text!r:.80}", found=text[:80])


def _time_ms(text: str) -> int:
    if is_number(text) and int(text) < 2**63:
        return int(text)
    raise InvalidArgument(f"time_ms: expected milliseconds since 1970 UTC, found {text!r:.80}", found=text[:80])


def _choice(name: str, choices: Sequence[str]) -> Callable[[str], str]:
    def parse_choice(text: str) -> str:
        if text in choices:
            return text
        raise InvalidArgument(f"{name}: expected {' or '.join(choices)}, found {text!r:.80}", found=text[:80])

    return parse_choice


def _in_query(name: str, meaning: str, schema: Mapping[str, Any], parser: Callable[[str], object]) -> Parameter:
    return Parameter(name, "query", meaning, schema, parser)


def _text(constraints: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "string", **constraints}


_BOUND_SCHEMA: Final = _text(patterns.BOUND)

BOOK: Final = Parameter(
    "book",
    "path",
    "Name of the book, percent-encoded; ~ and digits is a number, ~~ begins a name with ~.",
    _text(patterns.BOOK),
    lambda text: parse_name(text, "book"),
)
SEQNUM: Final = Parameter("seqnum", "path", "Seqnum of the record.", _text(patterns.SEQNUM), _seqnum("seqnum"))
WRITER: Final = Parameter("writer", "path", "Name of a writer, percent-encoded.", _text(patterns.WRITER), str)
TIME_MS: Final = Parameter(
    "time_ms",
    "path",
    "Milliseconds since 1970 UTC, on the clock of `time_ms` of records.",
    _text(patterns.TIME_MS),
    _time_ms,
)
TAG: Final = _in_query(
    "tag",
    "Only records of this stream; ~ and digits is a number. Default: every record of the book.",
    _text(patterns.STREAM),
    lambda text: parse_name(text, "tag"),
)
START: Final = _in_query("start", "First seqnum, inclusive. Default: the beginning.", _BOUND_SCHEMA, _seqnum("start"))
EVENTS_START: Final = _in_query(
    "start",
    "First seqnum, inclusive; 0 is the beginning. Default: behind Last-Event-ID, else what comes from now on.",
    _BOUND_SCHEMA,
    _seqnum("start"),
)
STOP: Final = _in_query("stop", "Last seqnum, exclusive. Default: what is there now.", _BOUND_SCHEMA, _seqnum("stop"))
AT_LEAST: Final = _in_query("at_least", "Lowest seqnum that will do.", _BOUND_SCHEMA, _seqnum("at_least"))
AT_MOST: Final = _in_query("at_most", "Highest seqnum that will do.", _BOUND_SCHEMA, _seqnum("at_most"))
LIMIT: Final = _in_query(
    "limit",
    "Records at most; an answer may hold fewer although there are more.",
    {"type": "integer", "minimum": 1, "maximum": limits.READ_RECORDS, "default": PAGE_RECORDS},
    _limit,
)
WAIT: Final = _in_query(
    "wait",
    "Seconds to wait for a record when there is none yet.",
    {"type": "number", "minimum": 0, "maximum": WAIT_S, "default": 0},
    _wait,
)
CONSISTENCY: Final = _in_query(
    "consistency",
    "session: sees at least all that the session has seen and appended. linearizable: also all that was appended by anybody "
    "before the request. any: what the engine knows now.",
    {"type": "string", "enum": list(CONSISTENCIES), "default": CONSISTENCIES[0]},
    lambda text: cast("Consistency", _choice("consistency", CONSISTENCIES)(text)),
)
ENCODING: Final = _in_query(
    "encoding",
    "How data is answered: `data` in base64, or `text` where it is UTF-8.",
    {"type": "string", "enum": list(ENCODINGS), "default": ENCODINGS[0]},
    lambda text: cast("Encoding", _choice("encoding", ENCODINGS)(text)),
)
