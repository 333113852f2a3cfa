"""What peers say to our servers, valid, as samples to be damaged: messages to engines, sequencers and controllers, recorded frames to
bookies, requests to gateways.

A *sample* is one frame with its length, or one HTTP request. What would change a cluster for good is named for terms and shards
that do not exist (`NOWHERE`), so that a run of ten minutes does not leave a cluster of a million shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import msgspec

from boki_common.cluster_token import NO_TOKEN
from boki_common.engine import engine_protocol as engine
from boki_common.engine.engine_protocol import Consistency, Direction, Query
from boki_common.engine.reads_together import asked_row
from boki_common.engine.tag_reads import TagRow, encode_tag_read
from boki_common.ids import Position
from boki_common.net.frames import PREFIX_BYTES, prefix
from boki_common.net.messages import FLAG_ANSWER, encode
from boki_common.records.record_batch import RUN_NAMED, join
from boki_common.runtime.ports import Buffer
from boki_logbook.scan.facts import ScanRange
from boki_logbook.scan.messages import ScanRequest, encode_request
from boki_logbook.testing.cluster import RecordSpec, RunSpec, make_batch, plain_records
from boki_metalog.entries import sequencer_protocol as sequencer
from boki_metalog.entries.metalog_entry import Expire, Lost, Trim
from boki_metalog.entries.permissions import OF_EARLIER_VERSION as ANY_ROLE
from itests.fuzz.mutants import mutant

VECTORS: Final = Path(__file__).parents[2] / "common/tests/vectors/bookkeeper"
NOWHERE: Final = 77
BOOK: Final = 7
WRITER: Final = bytes(15) + b"w"
TOKEN: Final = {0: Position(1, 0)}
_INCARNATION: Final = "0123456789abcdef" * 2


class Sample(NamedTuple):
    """One thing that a peer says."""

    whole: bytes
    opcode: int = -1
    body: bytes = b""
    """Of a message, whose checksum can be made right again."""

    def damaged(self, numbers: Random, others: Sequence[Sample]) -> bytes:
        """Mostly its inside, so that what checks checksums and lengths is passed."""
        choice = numbers.choice(others)
        if self.opcode >= 0 and numbers.random() < 0.9:
            opcode = self.opcode if numbers.random() < 0.95 else numbers.randrange(256)
            return b"".join(
                encode(
                    opcode,
                    numbers.random() < 0.02,
                    numbers.randrange(1, 1_000),
                    [mutant(numbers, self.body, [choice.body])],
                )
            )
        if self.opcode == HTTP:
            return mutant(numbers, self.whole, [choice.whole])
        payload = mutant(numbers, self.whole[PREFIX_BYTES:], [choice.whole[PREFIX_BYTES:]])
        if numbers.random() < 0.95:
            return prefix(len(payload)) + payload
        return mutant(numbers, self.whole, [choice.whole])


HTTP: Final = -2


class Conversation(NamedTuple):
    """With one kind of server."""

    hello: bytes
    """What introduces; empty where there is nothing of the kind."""
    samples: tuple[Sample, ...]
    harmless: tuple[Sample, ...]
    """Those that may be sent undamaged as often as one likes."""


def _message(opcode: int, *body: Buffer, request_id: int = 5) -> Sample:
    inside = b"".join(map(bytes, body))
    return Sample(b"".join(encode(opcode, 0, request_id, [inside])), opcode, inside)


def _nobodys_answer() -> Sample:
    return Sample(b"".join(encode(0, FLAG_ANSWER, 0xFFFF_FFFF, ())))


def to_engines() -> Conversation:
    hello = _message(
        engine.OP_HELLO,
        msgspec.msgpack.encode({"versions": [engine.PROTOCOL_VERSION], "features": [engine.READS], "auth": None}),
    )
    query = Query(BOOK, 0, 1, 2**63 - 1, 8, 1_000, 0, Direction.NEXT, Consistency.ANY)
    linear = query._replace(consistency=Consistency.LINEARIZABLE)
    plain, conditional = some_batches()
    row = asked_row(b"".join(map(bytes, engine.encode_read({}, linear)))[len(engine.encode_token({})) :], 9)
    tagged = query._replace(tag=0, direction=Direction.NEXT)
    harmless = (
        _message(engine.OP_READ, *engine.encode_read(TOKEN, query)),
        _message(engine.OP_READ, *engine.encode_read({}, query._replace(tag=3, direction=Direction.PREV))),
        _message(engine.OP_READ_PREV_MANY, *engine.encode_prev_many(TOKEN, BOOK, [(3, 2**63 - 1), (9, 10)])),
        _message(
            engine.OP_READ_TAGS,
            *encode_tag_read(engine.encode_token(TOKEN), tagged, 1, [TagRow(3, 0), TagRow(9, 7, 1)]),
        ),
        _message(engine.OP_SCAN, encode_request(ScanRequest(1, 0, ScanRange({0: (1, 2)}, {0: (3, 4)}, BOOK, (3,))))),
        _message(engine.OP_POSITION, *engine.encode_position(TOKEN, BOOK)),
        _message(engine.OP_WRITER, *engine.encode_writer(TOKEN, BOOK, WRITER)),
        _message(engine.OP_SEEK, *engine.encode_seek(TOKEN, BOOK, 1_700_000_000_000, Consistency.SESSION)),
        _message(engine.OP_SET_AUX, *engine.encode_set_aux(BOOK, NOWHERE, b"aux")),
        _nobodys_answer(),
    )
    return Conversation(
        hello.whole,
        (
            hello,
            *harmless,
            _message(engine.OP_READS, engine.encode_token(TOKEN), row, row),
            _message(engine.OP_APPEND, engine.encode_token(TOKEN), plain, request_id=0),
            _message(engine.OP_APPEND, engine.encode_token({}), conditional, request_id=0),
            _message(engine.OP_TRIM, *engine.encode_trim({}, BOOK, [(3, 1), (9, 1)], forget=False)),
            _message(engine.OP_STATUS),
            _message(engine.OP_HEADERS),
        ),
        harmless,
    )


def _batch(*runs: RunSpec) -> bytes:
    return b"".join(map(bytes, join([make_batch(*runs)], term=0, shard=0, first_local_id=0)))


def some_batches() -> tuple[bytes, ...]:
    """Record batches as SDKs send them."""
    plain = RunSpec(BOOK, WRITER, 1, plain_records("one", "two", tags=(3, 9)))
    condition = RunSpec(BOOK, WRITER, 3, (RecordSpec((3,), b"three", ((3, 0), (9, 5))),), 1, RUN_NAMED)
    return _batch(plain), _batch(plain, condition)


def to_sequencers() -> Conversation:
    hello = _message(sequencer.OP_HELLO, sequencer.encode_hello((_INCARNATION,), token=NO_TOKEN, role=ANY_ROLE))
    batch = _batch(RunSpec(BOOK, WRITER, 1, plain_records("one")))
    orders = (
        Trim(BOOK, ((0, 5), (3, 9)), forget=False),
        Expire(BOOK, WRITER, 5),
        Lost(NOWHERE, 1, 0, 1, b"evidence"),
    )
    harmless = (
        _message(sequencer.OP_REPORT, sequencer.encode_report(NOWHERE, {1: (5, 2), 2: (7, 3)}), request_id=0),
        _message(sequencer.OP_REPORT, sequencer.encode_report_of_one(NOWHERE, 1, 5, 2), request_id=0),
        _message(sequencer.OP_CARRY, sequencer.encode_carry(NOWHERE, 1, 5, 2), batch, request_id=0),
        _message(sequencer.OP_BARRIER, sequencer.encode_term(NOWHERE)),
        _message(sequencer.OP_CLOSE, sequencer.encode_close(NOWHERE, 1)),
        _message(sequencer.OP_YIELD, sequencer.encode_term(NOWHERE)),
        _message(sequencer.OP_OPEN, sequencer.encode_open(NOWHERE, _INCARNATION, 9)),
        _message(sequencer.OP_SUBSCRIBE, sequencer.encode_subscribe(NOWHERE, 0)),
        *(_message(sequencer.OP_ORDER, sequencer.encode_order(NOWHERE, order)) for order in orders),
        _nobodys_answer(),
    )
    return Conversation(
        hello.whole,
        (
            hello,
            *harmless,
            _message(sequencer.OP_REPORT, sequencer.encode_report(1, {0: (0, 0), 1: (0, 0)}), request_id=0),
            _message(sequencer.OP_CARRY, sequencer.encode_carry(1, 1, 1, 1), batch, request_id=0),
            _message(sequencer.OP_SUBSCRIBE, sequencer.encode_subscribe(1, 2**40)),
            _message(sequencer.OP_STATUS),
        ),
        harmless,
    )


def to_controllers() -> Conversation:
    hello = _message(sequencer.OP_HELLO, sequencer.encode_hello(token=NO_TOKEN, role=ANY_ROLE))
    status = _message(sequencer.OP_STATUS)
    return Conversation(hello.whole, (hello, status), (status, _nobodys_answer()))


def to_bookies(version: str) -> Conversation:
    """`v2` or `v3`: recorded from Apache's clients."""
    samples: dict[bytes, None] = {}
    for path in sorted(VECTORS.glob(f"*{version}-*.txt")):
        for line in path.read_text().splitlines():
            kind, separator, text = line.partition(": ")
            if separator and kind.startswith("request."):
                samples[bytes.fromhex(text)] = None
    frames = tuple(map(Sample, samples))
    reads = tuple(one for one in frames if len(one.whole) < 64)
    return Conversation(b"", frames, reads)


def _request(method: str, path: str, body: bytes = b"", *headers: str) -> Sample:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *headers]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return Sample("\r\n".join([*lines, "", ""]).encode() + body, HTTP)


def to_gateways() -> Conversation:
    harmless = (
        _request("GET", "/health"),
        _request("GET", "/v1/books/fuzz/records?tag=a&limit=5"),
        _request("GET", "/v1/books/fuzz/tail"),
        _request("GET", "/v1/books/fuzz/records/5"),
    )
    return Conversation(
        b"",
        (
            *harmless,
            _request("GET", "/openapi.json"),
            _request(
                "POST", "/v1/books/fuzz/records", b'{"text": "two apples", "tags": ["a", 7], "expect": {"a": null}}'
            ),
            _request("POST", "/v1/books/fuzz/records", b'{"data": "AAEC", "tags": []}', "Content-Encoding: gzip"),
            _request("POST", "/v1/books/fuzz/batch", b'{"records": [{"text": "a"}, {"data": "AAA="}]}'),
            _request("POST", "/v1/books/fuzz/trim", b'{"before": 5, "tag": "a"}', "Expect: 100-continue"),
            _request(
                "GET", "/v1/books/fuzz/events?tag=a&start=1", b"", "Last-Event-ID: 5", "Accept: text/event-stream"
            ),
        ),
        harmless,
    )
