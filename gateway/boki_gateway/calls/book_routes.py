"""The routes of the LogBook API: one row each, see `table`.

Paths name what is read or made; a POST that only reads (`prev-many`) has a body because its queries do not fit a URL.
"""

from __future__ import annotations

from typing import Final

from boki_common import errors, limits
from boki_gateway.calls import bodies, book_calls, events, patterns
from boki_gateway.calls import parameters as p
from boki_gateway.calls.call import EVENTS
from boki_gateway.calls.table import LARGE_BODY, Route
from boki_gateway.errors import NoSuchRecord

BOOK: Final = "/v1/books/{book}"
RECORDS: Final = f"{BOOK}/records"

BOOK_ROUTES: Final = (
    Route(
        method="POST",
        path=RECORDS,
        summary="Append one record; answered once it is durable and ordered.",
        handler=book_calls.append,
        parameters=(p.BOOK,),
        body=bodies.AppendRequest,
        answer=bodies.AppendAnswer,
        status=201,
        refusals=(
            errors.Conflict,
            errors.InvalidTag,
            errors.RecordTooLarge,
            errors.OutcomeUnknown,
            errors.WindowFull,
            errors.NumberReused,
            errors.AnswerForgotten,
            errors.WriterForgotten,
        ),
    ),
    Route(
        method="POST",
        path=f"{RECORDS}/batch",
        summary="Append records in order, as JSON or one JSON record a line. Not atomic: when it fails, the facts "
        "`committed` and `seqnums` tell the prefix that certainly is in the log.",
        handler=book_calls.append_batch,
        parameters=(p.BOOK,),
        body=bodies.BatchRequest,
        lines=True,
        body_bytes=LARGE_BODY,
        body_values=bodies.BATCH_VALUES,
        answer=bodies.BatchAnswer,
        refusals=(errors.InvalidTag, errors.RecordTooLarge, errors.OutcomeUnknown, errors.WindowFull),
    ),
    Route(
        method="GET",
        path=RECORDS,
        summary="Records of a stream in order, a page at a time; with `wait` a long poll for the first.",
        handler=book_calls.read_range,
        parameters=(p.BOOK, p.TAG, p.START, p.STOP, p.LIMIT, p.WAIT, p.CONSISTENCY, p.ENCODING),
        answer=bodies.RecordsAnswer,
    ),
    Route(
        method="GET",
        path=f"{RECORDS}/next",
        summary="The first record of a stream at or after a seqnum; with `wait` a long poll for it.",
        handler=book_calls.read_next,
        parameters=(p.BOOK, p.TAG, p.AT_LEAST, p.WAIT, p.CONSISTENCY, p.ENCODING),
        answer=bodies.RecordAnswer,
        refusals=(errors.Trimmed, errors.Lost),
    ),
    Route(
        method="GET",
        path=f"{RECORDS}/prev",
        summary="The last record of a stream at or before a seqnum.",
        handler=book_calls.read_prev,
        parameters=(p.BOOK, p.TAG, p.AT_MOST, p.CONSISTENCY, p.ENCODING),
        answer=bodies.RecordAnswer,
        refusals=(errors.Trimmed, errors.Lost),
    ),
    Route(
        method="GET",
        path=f"{RECORDS}/tail",
        summary="The newest record of a stream.",
        handler=book_calls.read_tail,
        parameters=(p.BOOK, p.TAG, p.CONSISTENCY, p.ENCODING),
        answer=bodies.RecordAnswer,
        refusals=(errors.Trimmed, errors.Lost),
    ),
    Route(
        method="POST",
        path=f"{RECORDS}/prev-many",
        summary="The last records of many streams at or before a seqnum each, all of one moment.",
        handler=book_calls.read_prev_many,
        reads=True,
        parameters=(p.BOOK, p.CONSISTENCY, p.ENCODING),
        body=bodies.PrevManyRequest,
        body_values=4 * limits.READ_MANY_QUERIES,
        answer=bodies.PrevManyAnswer,
        refusals=(errors.Trimmed, errors.Lost),
    ),
    Route(
        method="GET",
        path=f"{RECORDS}/{{seqnum}}",
        summary="The record with a seqnum.",
        handler=book_calls.read_at,
        parameters=(p.BOOK, p.SEQNUM, p.CONSISTENCY, p.ENCODING),
        answer=bodies.RecordAnswer,
        refusals=(NoSuchRecord, errors.Trimmed, errors.Lost),
    ),
    Route(
        method="PUT",
        path=f"{RECORDS}/{{seqnum}}/aux",
        summary="Leave cached data beside a record: best effort, in the cache of one engine.",
        handler=book_calls.set_aux,
        parameters=(p.BOOK, p.SEQNUM),
        body=bodies.AuxRequest,
        answer=bodies.AuxAnswer,
        refusals=(errors.RecordTooLarge,),
    ),
    Route(
        method="POST",
        path=f"{BOOK}/trim",
        summary="Drop what lies below marks, for everybody and for ever; ordered like an append.",
        handler=book_calls.trim,
        parameters=(p.BOOK,),
        body=bodies.TrimRequest,
        body_values=4 * limits.TRIM_PAIRS,
        answer=bodies.TrimAnswer,
        refusals=(errors.InvalidTag,),
    ),
    Route(
        method="GET",
        path=f"{BOOK}/writers/{{writer}}",
        summary="The last number of a named writer that is decided: what follows it was not applied.",
        handler=book_calls.read_writer,
        parameters=(p.BOOK, p.WRITER),
        answer=bodies.WriterAnswer,
    ),
    Route(
        method="GET",
        path=f"{BOOK}/seek/{{time_ms}}",
        summary="Where to read from to get what was ordered at or after a time.",
        handler=book_calls.seek,
        parameters=(p.BOOK, p.TIME_MS, p.CONSISTENCY),
        answer=bodies.SeekAnswer,
    ),
    Route(
        method="GET",
        path=f"{BOOK}/events",
        summary="Records of a stream as they are ordered, as server-sent events that can be resumed.",
        handler=events.follow,
        parameters=(p.BOOK, p.TAG, p.EVENTS_START, p.CONSISTENCY, p.ENCODING),
        headers=((events.LAST_EVENT_ID, "The id of the last event that was got: go on behind it.", patterns.EVENT_ID),),
        events=events.EVENT_TYPES,
        content_type=EVENTS,
    ),
)
