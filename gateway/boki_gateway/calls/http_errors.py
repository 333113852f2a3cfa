"""Errors as HTTP answers: one JSON shape, one status for each class of error. Pure.

    {"error": "Conflict", "message": "…", "facts": {"actual": {"user/1": "34359738370"}}, "retryable": false, "definite": true}

| status | what |
|---|---|
| 400 | an argument is wrong; 401 the cluster token; 403 host or origin; 404 no such path or record; 405 method |
| 408 | the body came too slowly; 413 it is too large, or the record; 415 its content type or encoding |
| 414 | the URL is too long; 417 an Expect that is not served; 431 headers are too large |
| 409 | the log decided against the request: an expectation failed, or the writer's numbers do not fit |
| 410 | trimmed or lost: it was there |
| 429 | too many undecided appends to one book: later |
| 500 | storage or the gateway itself failed |
| 502 | the engine answered what cannot be right, or does not admit this gateway, or the connection to it ended |
| 503 | not now: no engine, no sequencer, too few bookies, queues are full |
| 504 | no answer in time, or the outcome is unknown |

The status of a class is its own row of `STATUSES`, else follows from its nearest base with one. `retryable` and `definite` are
those of the error; a program decides by these and by the name, never by the status or the message.

Facts keep their names. Integers that may be seqnums, or that JavaScript cannot hold, become text; bytes become base64.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from boki_common import errors
from boki_common.errors import BokiError
from boki_common.http import http_server
from boki_common.http.host_rules import HostRefused, OriginRefused
from boki_gateway import errors as refusals
from boki_gateway.calls.names import name_text

EXACT_INTEGER: Final = 2**53 - 1
"""The largest integer that every JSON reader keeps: RFC 8259 §6."""
SEQNUM_FACTS: Final = frozenset({"actual", "before", "first", "floor", "last", "mark", "position", "seqnum", "seqnums"})
"""Facts whose integers are seqnums: text whatever their size, as everywhere in this API."""
NAME_FACTS: Final = frozenset({"book", "forgotten", "tag"})
"""Facts that are books or tags, or lists of them: in their text form, as everywhere in this API."""

STATUSES: Final[Mapping[type[BokiError], int]] = {
    BokiError: 500,
    errors.UsageError: 400,
    **http_server.STATUSES,
    errors.RecordTooLarge: 413,
    errors.WindowFull: 429,
    errors.ClosedError: 503,
    errors.SettingsError: 500,
    errors.ProtocolError: 502,
    errors.NetworkError: 502,
    errors.Unreachable: 503,
    errors.CallTimeout: 504,
    errors.Overloaded: 503,
    errors.RemoteError: 502,
    errors.DiskFull: 503,
    errors.MetadataUnavailable: 503,
    errors.MetadataUnknown: 504,
    errors.EntryUnknown: 503,
    errors.NotEnoughBookies: 503,
    errors.RecoveryFailed: 503,
    errors.MetalogError: 503,
    errors.AccessError: 502,
    errors.LogBookError: 409,
    errors.Trimmed: 410,
    errors.Lost: 410,
    errors.OutcomeUnknown: 504,
    errors.WriterForgotten: 504,
    refusals.NotAdmitted: 401,
    refusals.NoSuchPath: 404,
    refusals.NoSuchRecord: 404,
    refusals.MethodRefused: 405,
    refusals.BodyTooLarge: 413,
    refusals.BodyIncomplete: 408,
    refusals.UnsupportedBody: 415,
    refusals.UnsupportedEncoding: 415,
    HostRefused: 403,
    OriginRefused: 403,
}
RETRYABLE: Final = frozenset({408, 429, 502, 503, 504})
"""What clients of HTTP repeat."""
RETRY_AFTER_S: Final = 1
"""What answers of 429 and 503 say in `Retry-After`."""


class ErrorAnswer(msgspec.Struct, frozen=True):
    """What every failed request is answered with."""

    error: str
    """Name of the error's class."""
    message: str
    """For a person: what was expected, what was found, what to do."""
    facts: dict[str, Any]
    """For a program; which there are depends on the error."""
    retryable: bool
    """Whether the same request may succeed later without anybody changing anything."""
    definite: bool
    """Whether it certainly was not applied; false means perhaps applied."""


def status_of(error: BokiError) -> int:
    """The HTTP status of an error."""
    return status_of_class(type(error))


def status_of_class(kind: type[BokiError]) -> int:
    """The HTTP status of a class of errors: it never says refused of what was perhaps applied, nor for ever of what was not."""
    status = next(STATUSES[base] for base in kind.__mro__ if base in STATUSES)
    if kind in STATUSES:
        return status
    if not kind.definite and status < 500:
        return 504
    return 503 if kind.retryable and status not in RETRYABLE else status


def error_answer(error: BokiError, *, changes: bool = True) -> ErrorAnswer:
    """The answer to an error. What `changes` nothing has certainly not been applied."""
    facts = {name: _fact(name, value) for name, value in error.facts.items()}
    return ErrorAnswer(type(error).__name__, str(error), facts, error.retryable, error.definite or not changes)


def internal_answer() -> ErrorAnswer:
    """The answer when the gateway has a fault: what was asked may have been applied."""
    return ErrorAnswer("InternalError", "the gateway has a fault; its log says more", {}, False, False)


def _fact(name: str, value: object) -> object:
    if name in NAME_FACTS:
        return _names(value)
    if name in SEQNUM_FACTS and isinstance(value, Mapping):
        return {name_text(tag): _jsonable(seqnum, seqnum=True) for tag, seqnum in value.items()}
    return _jsonable(value, seqnum=name in SEQNUM_FACTS)


def _names(value: object) -> object:
    """A book, a tag, or a list of them, in their text form."""
    if isinstance(value, (list, tuple)):
        return [_names(inner) for inner in value]
    return name_text(value) if isinstance(value, (str, int)) else _jsonable(value, seqnum=False)


def _jsonable(value: object, *, seqnum: bool) -> object:
    if value is None or isinstance(value, (bool, str, float)):
        return value
    if isinstance(value, int):
        return str(value) if seqnum or abs(value) > EXACT_INTEGER else value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return b64encode(value).decode()
    if isinstance(value, Mapping):
        return {str(key): _jsonable(inner, seqnum=seqnum) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(inner, seqnum=seqnum) for inner in value]
    return str(value)
