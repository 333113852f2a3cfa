"""The metadata of one ledger, and the bytes of its node, as Apache BookKeeper 4.18 writes them.

    BookieMetadataFormatVersion \\t <version> \\n     the header of every version
    1   text: write quorum, ensemble size, length, then one line per segment: first entry \\t bookie \\t bookie …, then
        `<last entry> \\t CLOSED` if closed, `-102 \\t CLOSED` if in recovery, nothing if open
    2   LedgerMetadataFormat as protobuf text
    3   varint length, LedgerMetadataFormat (data_formats.proto): the only version we write

Rules:
- Everything is checked before it is believed; what cannot be right is CorruptData. Which bookies store an entry, and how
  many must answer, follows from these numbers: a wrong one loses data silently.
- A ledger that is not closed has no last entry (-1) and no length (0): these are decided by closing it.
- `ctoken` is the owner token of the last write: each write carries a random one, so that a write whose answer was lost
  can be recognised (`metadata.settle`). Apache's clients set one at the create and 0 afterwards.
- Fields that later versions may add are dropped when we write, as Apache's own clients do.

Version 1 stores neither password nor digest type: `digest_type` is then "" and the reader must know both. Pure.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from google.protobuf import message, text_format

from boki_common.bookkeeper.data_formats_pb2 import LedgerMetadataFormat
from boki_common.errors import CorruptData
from boki_common.ids import BookieId

FORMAT_VERSION: Final = 3
NO_DIGEST: Final = ""
"""Metadata of version 1 does not say which digest its entries have."""

_HEADER: Final = b"BookieMetadataFormatVersion\t"
_VERSION_DIGITS: Final = 10
_V1_IN_RECOVERY: Final = -102
_VARINT_BYTES: Final = 5
_NUMBER_MAX: Final = 2**63 - 1

_DIGEST_NUMBERS: Final = {
    "CRC32": LedgerMetadataFormat.CRC32,
    "HMAC": LedgerMetadataFormat.HMAC,
    "CRC32C": LedgerMetadataFormat.CRC32C,
    "DUMMY": LedgerMetadataFormat.DUMMY,
}
_DIGEST_NAMES: Final = {number: name for name, number in _DIGEST_NUMBERS.items()}


class LedgerState(enum.Enum):
    """OPEN → IN_RECOVERY → CLOSED, or OPEN → CLOSED; never back."""

    OPEN = LedgerMetadataFormat.OPEN
    IN_RECOVERY = LedgerMetadataFormat.IN_RECOVERY
    CLOSED = LedgerMetadataFormat.CLOSED


_STATES: Final = {state.value: state for state in LedgerState}


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """Which bookies store which entries of a ledger.

    Invariant (`faults` is empty): ensemble_size >= write_quorum >= ack_quorum >= 1; the segments begin at entry 0 and
    ascend; each names `ensemble_size` bookies; last_entry and length are those of a closed ledger, else -1 and 0.
    """

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    ensembles: tuple[tuple[int, tuple[BookieId, ...]], ...]
    """(first entry, the bookies of its slots) of each segment."""
    state: LedgerState = LedgerState.OPEN
    last_entry: int = -1
    length: int = 0
    """Bytes of all payloads."""
    digest_type: str = "CRC32C"
    password: bytes = field(default=b"", repr=False)
    custom: tuple[tuple[str, bytes], ...] = ()
    ctoken: int = 0
    ctime: int | None = None
    """Milliseconds since 1970; absent by default."""

    def ensemble_of(self, entry: int) -> tuple[BookieId, ...]:
        """The bookies whose slots store `entry`."""
        assert entry >= 0, entry
        found = self.ensembles[0][1]
        for first, bookies in self.ensembles:
            if first > entry:
                break
            found = bookies
        return found


def encode(metadata: LedgerMetadata) -> bytes:
    """The bytes of the node, in version 3. Asserts the invariant."""
    wrong = faults(metadata)
    assert not wrong, wrong
    data = LedgerMetadataFormat(
        quorumSize=metadata.write_quorum,
        ensembleSize=metadata.ensemble_size,
        length=metadata.length,
        lastEntryId=metadata.last_entry,
        state=metadata.state.value,
        segment=[
            LedgerMetadataFormat.Segment(firstEntryId=first, ensembleMember=bookies)
            for first, bookies in metadata.ensembles
        ],
        ackQuorumSize=metadata.ack_quorum,
        ctime=metadata.ctime,
        customMetadata=[LedgerMetadataFormat.cMetadataMapEntry(key=key, value=value) for key, value in metadata.custom],
        cToken=metadata.ctoken,
    )
    if metadata.digest_type != NO_DIGEST:
        data.digestType = _DIGEST_NUMBERS[metadata.digest_type]
        data.password = metadata.password
    body = data.SerializeToString()
    return _HEADER + b"%d\n" % FORMAT_VERSION + varint(len(body)) + body


def decode(value: bytes) -> LedgerMetadata:
    """Reads versions 1 to 3. Raises CorruptData."""
    version, body = _split_header(value)
    if version == 1:
        metadata = _decode_lines(body)
    elif version == 2:
        metadata = _decode_text(body)
    elif version == 3:
        metadata = _decode_delimited(body)
    else:
        raise CorruptData(
            f"expected ledger metadata of version 1 to 3, found {version}: it needs a later Boki",
            expected=FORMAT_VERSION,
            found=version,
        )
    wrong = faults(metadata)
    if wrong:
        raise CorruptData(f"ledger metadata cannot be right: {'; '.join(wrong)}")
    return metadata


def faults(metadata: LedgerMetadata) -> list[str]:
    """What breaks the invariant of `LedgerMetadata`, in words; empty when nothing does."""
    ensemble, write, ack = metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum
    found = []
    if not ensemble >= write >= ack >= 1:
        found.append(f"expected ensemble >= write quorum >= ack quorum >= 1, found {ensemble}, {write}, {ack}")
    if metadata.digest_type not in _DIGEST_NUMBERS and metadata.digest_type != NO_DIGEST:
        found.append(f"expected a digest of {sorted(_DIGEST_NUMBERS)}, found {metadata.digest_type!r}")
    found.extend(_segment_faults(metadata))
    if metadata.state is not LedgerState.CLOSED:
        if (metadata.last_entry, metadata.length) != (-1, 0):
            found.append(f"not closed, but has last entry {metadata.last_entry} and length {metadata.length}")
    elif metadata.last_entry < -1 or metadata.length < 0:
        found.append(f"closed at last entry {metadata.last_entry}, length {metadata.length}")
    elif metadata.last_entry == -1 and metadata.length:
        found.append(f"closed without entries, but with length {metadata.length}")
    elif metadata.ensembles and metadata.ensembles[-1][0] > metadata.last_entry + 1:
        found.append(f"last segment begins at {metadata.ensembles[-1][0]}, last entry is {metadata.last_entry}")
    return found


def _segment_faults(metadata: LedgerMetadata) -> list[str]:
    found = []
    firsts = [first for first, _bookies in metadata.ensembles]
    if not firsts or firsts[0] != 0:
        found.append(f"expected the first segment to begin at entry 0, found segments at {firsts[:10]}")
    if any(later <= first for first, later in pairwise(firsts)):
        found.append(f"expected segments in ascending order, found them at {firsts[:10]}")
    for first, bookies in metadata.ensembles:
        if len(bookies) != metadata.ensemble_size:
            found.append(f"expected {metadata.ensemble_size} bookies in the segment at {first}, found {len(bookies)}")
        if "" in bookies:
            found.append(f"a bookie without a name in the segment at {first}")
        # A bookie that is named twice would count twice as an answer in recovery. A closed ledger is only read.
        if len(set(bookies)) != len(bookies) and metadata.state is not LedgerState.CLOSED:
            found.append(f"a bookie is named twice in the segment at {first}: {', '.join(bookies)}")
    return found


def _split_header(value: bytes) -> tuple[int, bytes]:
    if not value.startswith(_HEADER):
        raise CorruptData(f"expected ledger metadata to begin with {_HEADER!r}, found {bytes(value[: len(_HEADER)])!r}")
    start = len(_HEADER)
    end = value.find(b"\n", start, start + _VERSION_DIGITS + 1)
    digits = bytes(value[start:end]) if end >= 0 else b""
    if not digits.isdigit():
        found = bytes(value[start : start + _VERSION_DIGITS + 1])
        raise CorruptData(f"expected a version number and a line end in ledger metadata, found {found!r}")
    return int(digits), bytes(value[end + 1 :])


def _decode_delimited(body: bytes) -> LedgerMetadata:
    length, start = _read_varint(body)
    if length != len(body) - start:
        raise CorruptData(
            f"expected {length} bytes of ledger metadata behind their length, found {len(body) - start}",
            expected=length,
            found=len(body) - start,
        )
    data = LedgerMetadataFormat()
    try:
        data.ParseFromString(body[start:])
    except message.DecodeError as error:
        raise CorruptData(f"ledger metadata of version 3 is no LedgerMetadataFormat: {error}") from error
    return _from_format(data)


def _decode_text(body: bytes) -> LedgerMetadata:
    data = LedgerMetadataFormat()
    try:
        text_format.Parse(body.decode(), data)
    except (UnicodeDecodeError, text_format.ParseError) as error:
        raise CorruptData(f"ledger metadata of version 2 is no LedgerMetadataFormat: {error}") from error
    return _from_format(data)


def _from_format(data: LedgerMetadataFormat) -> LedgerMetadata:
    if not data.IsInitialized():
        raise CorruptData(
            "ledger metadata lacks quorumSize, ensembleSize, length, state or firstEntryId, or is of a state unknown"
        )
    names: list[object] = [member for segment in data.segment for member in segment.ensembleMember]
    names += [entry.key for entry in data.customMetadata]
    wrong = next((name for name in names if not isinstance(name, str)), None)
    if wrong is not None:  # protobuf hands out such a name as its bytes
        raise CorruptData(f"expected names of bookies and custom values in UTF-8, found {wrong!r} in ledger metadata")
    state = _STATES[data.state]
    closed = state is LedgerState.CLOSED
    if closed and not data.HasField("lastEntryId"):
        raise CorruptData("ledger metadata says CLOSED but lacks lastEntryId")
    # Apache's clients, too, believe the digest only together with a password.
    stored = data.HasField("password")
    if stored and not data.HasField("digestType"):
        raise CorruptData("ledger metadata has a password but lacks, or has an unknown, digestType")
    return LedgerMetadata(
        ensemble_size=data.ensembleSize,
        write_quorum=data.quorumSize,
        ack_quorum=data.ackQuorumSize if data.HasField("ackQuorumSize") else data.quorumSize,
        ensembles=tuple(
            (segment.firstEntryId, tuple(BookieId(member) for member in segment.ensembleMember))
            for segment in data.segment
        ),
        state=state,
        last_entry=data.lastEntryId if closed else -1,
        length=data.length if closed else 0,
        digest_type=_DIGEST_NAMES[data.digestType] if stored else NO_DIGEST,
        password=data.password if stored else b"",
        custom=tuple((entry.key, entry.value) for entry in data.customMetadata),
        ctoken=data.cToken,
        ctime=data.ctime if data.HasField("ctime") else None,
    )


def _decode_lines(body: bytes) -> LedgerMetadata:
    """Version 1. Its ack quorum is its write quorum."""
    lines = body.decode(errors="replace").splitlines()
    try:
        write_quorum, ensemble_size, length = (int(line) for line in lines[:3])
        rows = [line.split("\t") for line in lines[3:] if line]
        state, last_entry = LedgerState.OPEN, -1
        if rows and rows[-1][1:] == ["CLOSED"]:
            last_entry = int(rows.pop()[0])
            state = LedgerState.CLOSED
            if last_entry == _V1_IN_RECOVERY:
                state, last_entry = LedgerState.IN_RECOVERY, -1
        ensembles = tuple((int(first), tuple(BookieId(name) for name in names)) for first, *names in rows)
        largest = max(map(abs, (write_quorum, ensemble_size, length, last_entry, *(first for first, _ in ensembles))))
        if largest > _NUMBER_MAX:
            raise ValueError(f"expected numbers of 64 bits, found {largest}")
    except ValueError as error:
        raise CorruptData(f"ledger metadata of version 1 has a line that cannot be right: {error}") from error
    return LedgerMetadata(
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=write_quorum,
        ensembles=ensembles,
        state=state,
        last_entry=last_entry,
        length=length if state is LedgerState.CLOSED else 0,
        digest_type=NO_DIGEST,
    )


def varint(number: int) -> bytes:
    """A number, not negative, as protobuf writes it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(body: bytes) -> tuple[int, int]:
    number = 0
    for index, byte in enumerate(body[:_VARINT_BYTES]):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number, index + 1
    raise CorruptData(f"expected a length in ledger metadata of version 3, found {body[:_VARINT_BYTES]!r}")
