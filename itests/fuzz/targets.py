"""Every decoder of bytes from outside: from peers, from the metadata store, from disks. Pure.

A target takes any bytes. It may raise one of our own errors and nothing else; what it takes must mean the same after it was encoded
again, where there is an encoder. Where a checksum would keep all damage away it is made right first: whoever means harm does
the same, and a disk or a bug may damage what is computed before it.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
import zstandard
from crc32c import crc32c

from boki_bookie.entries import ledger_index_format
from boki_bookie.entries.ledger_index_format import CheckpointMark
from boki_bookie.formats import entry_log_format, journal_format
from boki_bookie.formats.journal_format import SegmentHeader, SegmentScan
from boki_common import errors
from boki_common.bookkeeper import auth, availability, layout, ledger_metadata, v2, v3
from boki_common.bookkeeper.v3_messages import UnknownRequest
from boki_common.cluster_token import NO_TOKEN
from boki_common.engine import engine_protocol as engine
from boki_common.engine.answers import AnswerRow, decode_answers, decode_committed, encode_answers
from boki_common.engine.engine_protocol import Consistency, Direction, GapKind, GapRow, Query, Verdict
from boki_common.engine.read_reply import decode_point, decode_read_reply, encode_read_reply, encode_records
from boki_common.engine.reads_together import decode_read_answers, decode_reads, encode_read_answers
from boki_common.engine.tag_reads import decode_tag_read
from boki_common.ids import BookieId, Position
from boki_common.net import messages
from boki_common.net.connection import Address
from boki_common.net.frames import FrameParser, prefix
from boki_common.records.batch_layout import FLAG_ZSTD
from boki_common.records.record_batch import RecordBatch, join
from boki_common.runtime.ports import Buffer
from boki_logbook.peers.pushed_headers import AckedEntry, decode_headers, encode_headers
from boki_logbook.scan.messages import ScanAnswer, decode_answer, decode_request, encode_answer
from boki_logbook.scan.pages import Page
from boki_logbook.state import snapshot_format
from boki_logbook.state.snapshot_format import Decoder, LogPoint, Snapshot
from boki_logbook.state.state import DecisionState
from boki_logbook.upkeep import aux_rules
from boki_metalog.entries import metalog_entry
from boki_metalog.entries import sequencer_protocol as sequencer
from boki_metalog.entries.metalog_entry import Carried, Close, Expire, Lost, MetalogEntry, Open, ShardEnd, Trim
from boki_metalog.entries.permissions import ENGINE
from boki_metalog.terms import term_record, view
from itests.fuzz.conversations import BOOK, TOKEN, VECTORS, WRITER, some_batches, to_engines, to_sequencers

LISTED_LIMIT: Final = 10_000
"""Lists of more entries are not read to their end: a few bytes may stand for a hundred million."""
BOOKIE_ID: Final = bytes(range(16))
_LEDGER, _ENTRY = 5, 9


class Target(NamedTuple):
    """One decoder and samples of what it takes."""

    name: str
    run: Callable[[memoryview], object]
    samples: tuple[bytes, ...]


def _joined(buffers: Iterable[Buffer]) -> bytes:
    return b"".join(map(bytes, buffers))


# -- frames and messages


def _frames(data: memoryview) -> None:
    """A stream, in reads of which the first byte tells the size."""
    parser, size, data = FrameParser(limit=65_536), data[0] + 1 if data else 1, data[1:]
    parser.restrict(4_096)
    for at in range(0, len(data), size):
        piece = data[at : at + size]
        while piece:
            free = parser.free or parser.renew()
            count = min(len(free), len(piece))
            free[:count] = piece[:count]
            parser.received(count)
            piece = piece[count:]


def _message(data: memoryview) -> None:
    if len(data) >= 12:
        whole = bytearray(data)
        whole[8:12] = struct.pack("<I", crc32c(whole[12:], crc32c(whole[:8])))
        data = memoryview(bytes(whole))
    messages.decode(data)


def _error(data: memoryview) -> None:
    found = errors.from_wire(data)
    errors.from_wire(errors.to_wire(found))


# -- records


def _batch(data: memoryview) -> None:
    batch = RecordBatch.parse(data)
    if batch.run_count and not data[1] & FLAG_ZSTD:
        parts = join([batch], term=1, shard=2, first_local_id=3)
        again = RecordBatch.parse(memoryview(_joined(parts)))
        assert (again.record_count, again.runs) == (batch.record_count, batch.runs)


def _headers(data: memoryview) -> None:
    for _ in decode_headers(data):
        pass


def _snapshot_chunk(data: memoryview) -> None:
    if len(data) >= 20:
        whole = bytearray(data)
        whole[16:20] = struct.pack("<I", crc32c(whole[20:], crc32c(whole[:16])))
        data = memoryview(bytes(whole))
    _decode_snapshot([bytes(data)], _RAW_BYTES)


def _snapshot_piece(data: memoryview) -> None:
    """What the chunks of a snapshot hold, compressed and summed as it should be."""
    piece = bytes(data[: snapshot_format.CHUNK_BYTES])
    frame = zstandard.ZstdCompressor(write_content_size=True).compress(piece)
    head = struct.pack("<4sB3xII", b"BKSN", _SNAPSHOT[4], 0, len(piece))
    _decode_snapshot([head + struct.pack("<I", crc32c(frame, crc32c(head))) + frame], len(piece))


def _decode_snapshot(chunks: Sequence[bytes], size: int) -> None:
    decoder = Decoder(size)
    for chunk in chunks:
        decoder.feed(chunk)
    for _ in decoder.finish():
        pass
    decoder.snapshot()


# -- the metadata store


def _metalog_entry(data: memoryview) -> None:
    found = metalog_entry.decode(data)
    assert metalog_entry.decode(metalog_entry.encode(found)) == found


def _command(data: memoryview) -> None:
    found = metalog_entry.decode_command(data)
    assert metalog_entry.decode_command(metalog_entry.encode_command(found)) == found


def _ledger_metadata(data: memoryview) -> None:
    found = ledger_metadata.decode(bytes(data))
    assert ledger_metadata.decode(ledger_metadata.encode(found)) == found


def _list_of_entries(data: memoryview) -> None:
    entries: list[int] = []
    for run in availability.decode(data):
        if len(entries) + len(run) > LISTED_LIMIT:
            return
        entries.extend(run)
    assert [entry for run in availability.decode(availability.encode(entries)) for entry in run] == entries


def _cookie(data: memoryview) -> None:
    with warnings.catch_warnings():  # protobuf's library has words for some escapes
        warnings.simplefilter("ignore", DeprecationWarning)
        layout.decode_cookie(bytes(data))


# -- bookies


def _v3_request(data: memoryview) -> None:
    request = v3.decode_request(data)
    if not isinstance(request, UnknownRequest):
        again = v3.decode_request(memoryview(v3.encode_request(request))[4:])
        assert again == request, (again, request)


def _v3_response(data: memoryview) -> None:
    response = v3.decode_response(data)
    assert v3.decode_response(memoryview(v3.encode_response(response))[4:]) == response


def _v2_runs(data: memoryview) -> None:
    """What is decoded many at a time."""
    frames = [data, data[1:], data]
    v2.decode_add_run(frames, 0)
    v2.decode_unfenced_reads(frames, 0)


# -- disks


def _segment(data: memoryview) -> None:
    whole = bytearray(data)
    if len(whole) >= journal_format.PAGE_BYTES:
        whole[4:8] = struct.pack("<I", crc32c(whole[8:64]))
    header = journal_format.decode_segment_header(memoryview(bytes(whole)), name="a test's")
    at = journal_format.PAGE_BYTES
    if len(whole) >= at + 32:  # the first group's header is right too
        whole[at + 4 : at + 8] = struct.pack("<I", crc32c(whole[at + 8 : at + 32], header.salt))
    scan = SegmentScan(memoryview(bytes(whole)), header, name="a test's")
    for _ in scan.readable_groups():
        pass
    for _ in scan.groups():
        pass


def _stored_entries(data: memoryview) -> None:
    whole = bytearray(data)
    if len(whole) >= entry_log_format.ENTRY_HEADER_BYTES:
        length = struct.unpack_from("<I", whole, 4)[0]
        whole[0:4] = struct.pack("<I", crc32c(whole[4 : entry_log_format.ENTRY_HEADER_BYTES + length]))
        stored = memoryview(bytes(whole))
        entry_log_format.sound_body(stored, _LEDGER, _ENTRY)
        entry_log_format.decode_run(stored, 0, _LEDGER, _ENTRY, [0, 40], [16, 16])
        for _ in entry_log_format.stored_entries(stored, base=0, limit=len(stored)):
            pass
    entry_log_format.decode_entry(memoryview(bytes(whole)), _LEDGER, _ENTRY, name="a test's", offset=0)


def _entry_log_header(data: memoryview) -> None:
    whole = bytearray(data)
    whole[4:8] = struct.pack("<I", crc32c(whole[8:32]))
    entry_log_format.check_file_header(bytes(whole), file_number=1, bookie_id=BOOKIE_ID, name="a test's")


def _index_blocks(data: memoryview) -> None:
    whole = bytearray(data)
    if len(whole) >= ledger_index_format.BLOCK_HEADER_BYTES:
        size = struct.unpack_from("<Q", whole, 16)[0]
        end = min(len(whole), ledger_index_format.BLOCK_HEADER_BYTES + size)
        start = 0 if whole[8:12] == b"\x01\0\0\0" else _OWNER
        whole[4:8] = struct.pack("<I", crc32c(whole[8:end], start))
    for _ in ledger_index_format.decode_blocks(memoryview(bytes(whole)), owner=_OWNER, name="a test's"):
        pass


def _mark(data: memoryview) -> None:
    whole = bytearray(data)
    whole[4:8] = struct.pack("<I", crc32c(whole[8:]))
    ledger_index_format.decode_mark(bytes(whole), name="a test's")


# -- samples

_OWNER: Final = ledger_index_format.owner_of(BOOKIE_ID, 1)
_HEADER: Final = SegmentHeader(3, 3 * journal_format.PAGE_BYTES, BOOKIE_ID, 77)


def _a_segment() -> bytes:
    body = struct.pack(">qq", _LEDGER, _ENTRY) + b"a body"
    bodies: list[Buffer] = [
        body,
        journal_format.encode_ledger_id(_LEDGER),
        journal_format.encode_tombstone(_LEDGER, 20_000),
        journal_format.encode_hold(_LEDGER, 3),
    ]
    group, _ = journal_format.encode_group(_HEADER, 9, [1, 3, 4, 8], bodies)
    return (journal_format.encode_segment_header(_HEADER) + _joined(group)).ljust(_HEADER.segment_bytes, b"\0")


def _stored() -> bytes:
    head = struct.pack("<Iqq", 16, _LEDGER, _ENTRY)
    body = struct.pack(">qq", _LEDGER, _ENTRY)
    return struct.pack("<I", crc32c(body, crc32c(head))) + head + body


def _a_block() -> bytes:
    entries, locations, sizes = struct.pack("<2q", 1, 2), struct.pack("<2Q", 4_096, 4_200), struct.pack("<2I", 16, 32)
    ledger = struct.pack("<qIBB2x20sI", _LEDGER, 2, 1, 0, bytes(20), 0) + entries + locations + sizes
    ledger += bytes(-len(ledger) % 8)
    head = struct.pack("<IIQQ", ledger_index_format.FORMAT_VERSION, 1, len(ledger), 4)
    return struct.pack("<4sI", b"BKI1", crc32c(ledger, crc32c(head, _OWNER))) + head + ledger


def _an_entry() -> bytes:
    return bytes(
        metalog_entry.encode(
            MetalogEntry(
                10, 15, 1_700_000_000_000, (ShardEnd(1, 5, 2), ShardEnd(3, 9, 4)),
                (
                    Open(3, "ab" * 16, 9), Close(1), Trim(BOOK, ((0, 5), (3, 9)), False), Expire(BOOK, WRITER, 5),
                    Lost(1, 1, 0, 1, b"evidence"),
                ),
                (Carried(1, b"a carried body"),),
            )
        )
    )  # fmt: skip


def _a_reply() -> bytes:
    columns = encode_records([9, 11], [70, 80], [b"", struct.pack("<Q", 3)], [0, 1], [b"\0\0one", b"\0\0two"])
    gaps = (GapRow(1, 5, GapKind.TRIMMED),)
    return _joined(encode_read_reply(TOKEN, 12, more=True, records=columns, gaps=gaps, aux={1: b"aux"}))


def _a_point() -> bytes:
    columns = encode_records([9], [70], [struct.pack("<Q", 3)], [1], [b"\0\0one"])
    return _joined(encode_read_reply(TOKEN, 12, more=False, records=columns))


_STATE: Final = DecisionState()
_POINT: Final = LogPoint(0, 2, 7, False, 99, 100, 5_000, 3, ((1, 20, 2), (2, 4, 1)))
_WHOLE: Final = Snapshot(_STATE.snapshot_state(), (_POINT,), ((1, 5),))
_RAW_BYTES: Final = snapshot_format.raw_bytes(_WHOLE)
_SNAPSHOT: Final = next(iter(snapshot_format.encode(_WHOLE)))
_PIECE: Final = zstandard.ZstdDecompressor().decompress(_SNAPSHOT[20:])


_COOKIE: Final = layout.Cookie(BookieId("a"), "j", ("l", "m"), "instance")
_RECORD: Final = term_record.TermRecord(
    1, 1, 0, (view.SlotRange(0, 1_023),), 5, 9, 100, 1_700_000_000_000, term_record.Location()
)


def _recorded(pattern: str, kind: str) -> tuple[bytes, ...]:
    """Frames of Apache's clients and bookies, without their length."""
    found: dict[bytes, None] = {}
    for path in sorted(VECTORS.glob(pattern)):
        for line in path.read_text().splitlines():
            name, separator, text = line.partition(": ")
            if separator and name.startswith(kind):
                found[bytes.fromhex(text)[4:]] = None
    return tuple(found)


_METADATA: Final = (
    ledger_metadata.encode(
        ledger_metadata.LedgerMetadata(
            2, 2, 1, ((0, (BookieId("a"), BookieId("b"))), (5, (BookieId("a"), BookieId("c")))),
            ledger_metadata.LedgerState.CLOSED, 9, 99, "HMAC", b"password", (("name", b"value"),), 7, 1,
        )
    ),
    (b'BookieMetadataFormatVersion\t2\nquorumSize: 1 ensembleSize: 1 length: 9 lastEntryId: 0 state: CLOSED '
     b'segment { ensembleMember: "a:1" firstEntryId: 0 } digestType: CRC32 password: "p" ackQuorumSize: 1'),
    b"BookieMetadataFormatVersion\t1\n1\n1\n9\n0\ta:1\n4\tCLOSED",
)  # fmt: skip


def _bodies(opcode: int) -> tuple[bytes, ...]:
    return tuple(one.body for one in to_engines().samples if one.opcode == opcode)


_QUERY: Final = Query(BOOK, 0, 1, 2**63 - 1, 8, 1_000, 0, Direction.NEXT, Consistency.ANY)
_ROWS: Final = (
    AnswerRow(BOOK, WRITER, 1, 9, 12, 2, Verdict.COMMITTED),
    AnswerRow(BOOK, WRITER, 3, 0, 12, 1, Verdict.CONFLICT, ((3, 9),)),
)


def _first_conversation() -> bytes:
    return b"\x40" + b"".join(one.whole for one in to_engines().samples)


TARGETS: Final[tuple[Target, ...]] = (
    Target("frames", _frames, (_first_conversation(), b"\x07" + prefix(3) + b"abc")),
    Target("message", _message, tuple(one.whole[4:] for one in (*to_engines().samples, *to_sequencers().samples))),
    Target("error", _error, (errors.to_wire(errors.Overloaded("expected less", found=3)), errors.to_wire(ValueError("x")))),
    Target("record batch", _batch, some_batches()),
    Target("pushed headers", _headers, (
        _joined(encode_headers(9, 1, 2, [AckedEntry(4, 7, RecordBatch.parse(memoryview(one))) for one in some_batches()])),
    )),
    Target("snapshot chunk", _snapshot_chunk, (_SNAPSHOT,)),
    Target("snapshot piece", _snapshot_piece, (_PIECE,)),
    Target("aux chunk", aux_rules.decode_chunk, tuple(aux_rules.encode_chunks([(5, b"one"), (9, b"")]))),
    Target("aux node", lambda data: aux_rules.decode_node(bytes(data)), (aux_rules.encode_node(aux_rules.AuxNode()),)),
    Target("token", engine.decode_token, (engine.encode_token(TOKEN), engine.encode_token({0: Position(1, 2), 7: Position(3, 4)}))),
    Target("READ", engine.decode_read, (_joined(engine.encode_read(TOKEN, _QUERY)), _joined(engine.encode_read({}, _QUERY)))),
    Target("READS", decode_reads, _bodies(engine.OP_READS)),
    Target("READ_TAGS", decode_tag_read, _bodies(engine.OP_READ_TAGS)),
    Target("SCAN", decode_request, _bodies(engine.OP_SCAN)),
    Target("page of a scan", decode_answer, (encode_answer(ScanAnswer(1, 3, Page(term=2, first_positions=bytes(8)))),)),
    Target("READ_PREV_MANY", engine.decode_prev_many, _bodies(engine.OP_READ_PREV_MANY)),
    Target("POSITION", engine.decode_position, (_joined(engine.encode_position(TOKEN, BOOK)),)),
    Target("TRIM", engine.decode_trim, _bodies(engine.OP_TRIM)),
    Target("SET_AUX", engine.decode_set_aux, _bodies(engine.OP_SET_AUX)),
    Target("WRITER", engine.decode_writer, (_joined(engine.encode_writer(TOKEN, BOOK, WRITER)),)),
    Target("SEEK", engine.decode_seek, (_joined(engine.encode_seek(TOKEN, BOOK, 5, Consistency.ANY)),)),
    Target("answers", decode_answers, (_joined(encode_answers(TOKEN, _ROWS)),)),
    Target("committed answers", decode_committed, (_joined(encode_answers(TOKEN, _ROWS[:1])),)),
    Target("found", engine.decode_found, (_joined(engine.encode_found(TOKEN, 5, 9)),)),
    Target("read reply", decode_read_reply, (_a_reply(),)),
    Target("point", decode_point, (_a_point(),)),
    Target("told", decode_read_answers, (encode_read_answers([(5, [_a_reply()]), (6, [b""])], more=True),)),
    Target("sequencer HELLO", sequencer.decode_hello, (sequencer.encode_hello(("ab" * 16,), token=NO_TOKEN, role=ENGINE),)),
    Target("sequencer welcome", sequencer.decode_welcome, (
        sequencer.encode_welcome(sequencer.Welcome(1, "ab" * 16, 0, 1, True, True)),
    )),
    Target("OPEN", sequencer.decode_open, (sequencer.encode_open(1, "ab" * 16, 9),)),
    Target("REPORT", sequencer.decode_report, (sequencer.encode_report(1, {1: (5, 2), 2: (7, 3)}),)),
    Target("CARRY", sequencer.decode_carry, (sequencer.encode_carry(1, 1, 5, 2) + some_batches()[0],)),
    Target("CLOSE", sequencer.decode_close, (sequencer.encode_close(1, 1),)),
    Target("SUBSCRIBE", sequencer.decode_subscribe, (sequencer.encode_subscribe(1, 0),)),
    Target("ENTRIES", sequencer.decode_entries, (_joined(sequencer.encode_entries(1, 4, [_an_entry(), b""])),)),
    Target("ORDER", sequencer.decode_order, (
        sequencer.encode_order(1, Trim(BOOK, ((0, 5), (3, 9)), False)), sequencer.encode_order(1, Expire(BOOK, WRITER, 5)),
        sequencer.encode_order(1, Lost(1, 1, 0, 1, b"evidence")),
    )),
    Target("metalog entry", _metalog_entry, (_an_entry(),)),
    Target("command", _command, tuple(
        bytes(metalog_entry.encode_command(one)) for one in metalog_entry.decode(_an_entry()).commands
    )),
    Target("view", lambda data: view.decode_view(bytes(data)), (view.encode_view(view.first_view()),)),
    Target("term record", lambda data: term_record.decode_record(bytes(data), 1), (term_record.encode_record(_RECORD),)),
    Target("v2 request", v2.decode_request, _recorded("*v2-*.txt", "request.")),
    Target("v2 runs", _v2_runs, _recorded("*v2-*.txt", "request.")),
    Target("v2 response", v2.decode_response, _recorded("*v2-*.txt", "response.")),
    Target("v3 request", _v3_request, _recorded("*v3-*.txt", "request.")),
    Target("v3 response", _v3_response, _recorded("*v3-*.txt", "response.")),
    Target("auth", auth.decode, (auth.encode(auth.greeting(BookieId("a"))),)),
    Target("list of entries", _list_of_entries, (availability.encode([*range(20), 30, 31, 40, 41, 50, 51]),)),
    Target("ledger metadata", _ledger_metadata, _METADATA),
    Target("cookie", _cookie, (layout.encode_cookie(_COOKIE),)),
    Target("bookie service", lambda data: layout.decode_bookie_service(bytes(data)), (
        layout.encode_bookie_service(Address("host", 3_181)),
    )),
    Target("journal segment", _segment, (_a_segment(),)),
    Target("journal ledger", journal_format.decode_ledger, (
        journal_format.encode_ledger(journal_format.LedgerRecord(_LEDGER, True, bytes(20))),
    )),
    Target("journal fence", journal_format.decode_ledger_id, (journal_format.encode_ledger_id(_LEDGER),)),
    Target("journal tombstone", journal_format.decode_tombstone, (journal_format.encode_tombstone(_LEDGER, 20_000),)),
    Target("stored entries", _stored_entries, (_stored() * 3,)),
    Target("entry log header", _entry_log_header, (entry_log_format.encode_file_header(1, BOOKIE_ID),)),
    Target("index blocks", _index_blocks, (_a_block(), _a_block() * 2)),
    Target("checkpoint mark", _mark, (
        ledger_index_format.encode_mark(CheckpointMark(3, 9, 4, BOOKIE_ID, 1, 4_096, 1, 8_192)),
    )),
)  # fmt: skip


def feed(target: Target, data: bytes) -> bool:
    """Whether the target took the bytes. Raises what it must not."""
    try:
        with np.errstate(all="ignore"):
            target.run(memoryview(data))
    except errors.BokiError:
        return False
    return True


def seeds() -> list[tuple[int, bytes]]:
    """(place in TARGETS, sample)."""
    return [(place, sample) for place, target in enumerate(TARGETS) for sample in target.samples]
