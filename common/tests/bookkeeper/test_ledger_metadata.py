"""Ledger metadata against nodes recorded from Apache BookKeeper 4.18, and against values that cannot be right."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.bookkeeper import ledger_metadata
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.errors import CorruptData
from boki_common.ids import BookieId

VECTORS = Path(__file__).parents[1] / "vectors" / "bookkeeper"

A, B, C, D = (BookieId(f"127.0.0.1:{port}") for port in (25181, 25182, 25183, 25184))
CUSTOM = (("application", b"interop"),)
INTEROP = LedgerMetadata(
    ensemble_size=3, write_quorum=3, ack_quorum=2, ensembles=(), password=b"interop", custom=CUSTOM
)


def node(name: str, path: str) -> bytes:
    """The value of a node in a recorded step."""
    found = re.search(rf"^{re.escape(path)}: ([0-9a-f]*)$", (VECTORS / f"zk-{name}.txt").read_text(), re.MULTILINE)
    assert found, (name, path)
    return bytes.fromhex(found[1])


RECORDED = {
    ("hierarchical-02-ledger-created", "/ledgers/00/0000/L0000"): replace(
        INTEROP, ensembles=((0, (B, C, A)),), ctoken=6982745542527648968
    ),
    ("hierarchical-03-ensemble-change", "/ledgers/00/0000/L0000"): replace(
        INTEROP, ensembles=((0, (B, C, A)), (12, (B, D, A)))
    ),
    ("hierarchical-04-closed", "/ledgers/00/0000/L0000"): replace(
        INTEROP,
        ensembles=((0, (B, C, A)), (12, (B, D, A))),
        state=LedgerState.CLOSED,
        last_entry=29,
        length=3_000,
    ),
    ("hierarchical-07-abandoned", "/ledgers/00/0000/L0003"): replace(
        INTEROP, ensembles=((0, (D, B, A)),), digest_type="HMAC", ctoken=3061346190093340989
    ),
    ("hierarchical-08-in-recovery", "/ledgers/00/0000/L0003"): replace(
        INTEROP, ensembles=((0, (D, B, A)),), digest_type="HMAC", state=LedgerState.IN_RECOVERY
    ),
    ("hierarchical-09-recovered", "/ledgers/00/0000/L0003"): replace(
        INTEROP,
        ensembles=((0, (D, B, A)),),
        digest_type="HMAC",
        state=LedgerState.CLOSED,
        last_entry=4,
        length=500,
    ),
    ("longhierarchical-02-ledger-created", "/ledgers/000/0000/0000/0000/L0000"): replace(
        INTEROP, ensembles=((0, (D, C, B)),), ctoken=587385011365577133
    ),
    ("longhierarchical-03-ensemble-change", "/ledgers/000/0000/0000/0000/L0000"): replace(
        INTEROP, ensembles=((0, (D, C, B)), (13, (D, A, B)))
    ),
    ("longhierarchical-04-closed", "/ledgers/000/0000/0000/0000/L0000"): replace(
        INTEROP,
        ensembles=((0, (D, C, B)), (13, (D, A, B))),
        state=LedgerState.CLOSED,
        last_entry=29,
        length=3_000,
    ),
}


@pytest.mark.parametrize(("name", "path"), RECORDED, ids=lambda value: value)
def test_recorded_nodes_of_version_3_in_both_directions(name: str, path: str) -> None:
    value, expected = node(name, path), RECORDED[name, path]
    found = ledger_metadata.decode(value)
    assert found == expected
    assert ledger_metadata.encode(found) == value


def test_a_recorded_node_of_version_1() -> None:
    found = ledger_metadata.decode(node("hierarchical-05-format-v1", "/ledgers/00/0000/L0001"))
    assert found == LedgerMetadata(
        ensemble_size=3,
        write_quorum=3,
        ack_quorum=3,
        ensembles=((0, (B, D, A)),),
        state=LedgerState.CLOSED,
        last_entry=2,
        length=300,
        digest_type=ledger_metadata.NO_DIGEST,
    )
    assert ledger_metadata.decode(ledger_metadata.encode(found)) == found


def test_a_recorded_node_of_version_2() -> None:
    found = ledger_metadata.decode(node("hierarchical-06-format-v2", "/ledgers/00/0000/L0002"))
    assert found == replace(INTEROP, ensembles=((0, (B, A, D)),), state=LedgerState.CLOSED, last_entry=2, length=300)


@pytest.mark.parametrize(
    ("tail", "state"),
    [("", LedgerState.OPEN), ("-102\tCLOSED", LedgerState.IN_RECOVERY), ("-1\tCLOSED", LedgerState.CLOSED)],
)
def test_states_of_version_1(tail: str, state: LedgerState) -> None:
    found = ledger_metadata.decode(f"BookieMetadataFormatVersion\t1\n1\n2\n0\n0\ta:1\tb:2\n{tail}".encode())
    assert (found.state, found.last_entry, found.write_quorum, found.ensemble_size) == (state, -1, 1, 2)
    assert found.ensembles == ((0, ("a:1", "b:2")),)


def test_the_password_is_not_printed() -> None:
    assert "interop" not in repr(replace(INTEROP, custom=()))


def test_the_ensemble_of_an_entry() -> None:
    metadata = replace(INTEROP, ensembles=((0, (A, B, C)), (12, (A, B, D)), (20, (C, B, D))))
    found = [metadata.ensemble_of(entry) for entry in (0, 11, 12, 19, 20, 10**12)]
    assert found == [(A, B, C), (A, B, C), (A, B, D), (A, B, D), (C, B, D), (C, B, D)]


OPEN = replace(INTEROP, ensembles=((0, (A, B, C)),))
CLOSED = replace(OPEN, state=LedgerState.CLOSED, last_entry=9, length=1)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (replace(OPEN, write_quorum=4), "expected ensemble >= write quorum >= ack quorum >= 1, found 3, 4, 2"),
        (replace(OPEN, ack_quorum=4), "found 3, 3, 4"),
        (replace(OPEN, ack_quorum=0), "found 3, 3, 0"),
        (replace(OPEN, ensembles=()), "first segment to begin at entry 0, found segments at \\[\\]"),
        (replace(OPEN, ensembles=((1, (A, B, C)),)), "found segments at \\[1\\]"),
        (replace(OPEN, ensembles=((0, (A, B, C)), (5, (A, B, D)), (5, (B, C, D)))), "ascending order"),
        (replace(OPEN, ensembles=((0, (A, B)),)), "expected 3 bookies in the segment at 0, found 2"),
        (replace(OPEN, ensembles=((0, (A, B, BookieId(""))),)), "without a name"),
        (replace(OPEN, ensembles=((0, (A, B, A)),)), "named twice"),
        (replace(CLOSED, last_entry=-2), "closed at last entry -2"),
        (replace(CLOSED, length=-1), "length -1"),
        (replace(CLOSED, last_entry=-1, length=5), "without entries"),
        (replace(CLOSED, ensembles=((0, (A, B, C)), (11, (A, B, D)))), "last segment begins at 11, last entry is 9"),
    ],
)
def test_numbers_that_cannot_be_right(wrong: LedgerMetadata, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError):
        ledger_metadata.encode(wrong)
    with monkeypatch.context() as patched:
        patched.setattr(ledger_metadata, "faults", lambda _metadata: [])
        value = ledger_metadata.encode(wrong)
    with pytest.raises(CorruptData, match=says):
        ledger_metadata.decode(value)


def test_a_closed_ledger_with_a_bookie_twice_can_be_read() -> None:
    metadata = replace(CLOSED, ensembles=((0, (A, B, A)),))
    assert ledger_metadata.decode(ledger_metadata.encode(metadata)) == metadata


def test_the_last_segment_of_a_closed_ledger_may_be_empty() -> None:
    metadata = replace(CLOSED, ensembles=((0, (A, B, C)), (10, (A, B, D))))
    assert ledger_metadata.decode(ledger_metadata.encode(metadata)) == metadata


WHOLE = node("hierarchical-04-closed", "/ledgers/00/0000/L0000")
HEADER = b"BookieMetadataFormatVersion\t"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"", "expected ledger metadata to begin with"),
        (b"BookieMetadata", "expected ledger metadata to begin with"),
        (HEADER, "expected a version number"),
        (HEADER + b"3", "expected a version number"),
        (HEADER + b"three\n", "expected a version number"),
        (HEADER + b"-3\n", "expected a version number"),
        (HEADER + b"12345678901\n", "expected a version number"),
        (HEADER + b"4\n\x00", "expected ledger metadata of version 1 to 3, found 4"),
        (HEADER + b"0\n\x00", "found 0"),
        (HEADER + b"3\n", "expected a length"),
        (HEADER + b"3\n" + b"\xff" * 10, "expected a length"),
        (HEADER + b"3\n\x00", "lacks quorumSize"),
        (WHOLE[:-1], "expected 160 bytes .* found 159"),
        (WHOLE + b"\x00", "expected 160 bytes .* found 161"),
        (HEADER + b"3\n\x02\xff\xff", "no LedgerMetadataFormat"),
        (HEADER + b"2\nquorumSize: x", "no LedgerMetadataFormat"),
        (HEADER + b"2\n\xff\xfe", "no LedgerMetadataFormat"),
        (HEADER + b"2\nquorumSize: 1\n", "lacks"),
        (HEADER + b"1\n", "cannot be right"),
        (HEADER + b"1\n3\n3\nx\n", "cannot be right"),
        (HEADER + b"1\n1\n1\n0\nzero\ta:1\n", "cannot be right"),
        (HEADER + b"1\n1\n1\n9223372036854775808\n0\ta:1\n4\tCLOSED", "64 bits"),
        (WHOLE.replace(b"127.0.0.1:25182", b"\xff27.0.0.1:25182"), r"UTF-8, found b'\\xff27"),
        (WHOLE.replace(b"application", b"applicatio\xff"), "UTF-8"),
        (HEADER + b"2\nquorumSize: 1 ensembleSize: 1 length: 0 state: CLOSED", "lacks lastEntryId"),
        (HEADER + b'2\nquorumSize: 1 ensembleSize: 1 length: 0 state: OPEN password: ""', "digestType"),
    ],
)
def test_bytes_that_cannot_be_right(value: bytes, says: str) -> None:
    with pytest.raises(CorruptData, match=says):
        ledger_metadata.decode(value)


def test_every_flipped_byte_is_either_refused_or_another_valid_value() -> None:
    for position in range(len(WHOLE)):
        for bit in (1, 0x80):
            damaged = bytearray(WHOLE)
            damaged[position] ^= bit
            try:
                found = ledger_metadata.decode(bytes(damaged))
            except CorruptData:
                continue
            assert not ledger_metadata.faults(found)


bookie_ids = st.text("abcdef0123456789-.:", min_size=1, max_size=40).map(BookieId)


@st.composite
def metadatas(draw: st.DrawFn) -> LedgerMetadata:
    ensemble = draw(st.integers(1, 5))
    write = draw(st.integers(1, ensemble))
    bookies = st.lists(bookie_ids, min_size=ensemble, max_size=ensemble, unique=True).map(tuple)
    firsts = sorted({0} | draw(st.sets(st.integers(1, 2**40), max_size=4)))
    state = draw(st.sampled_from(LedgerState))
    last = draw(st.integers(firsts[-1], 2**62)) if state is LedgerState.CLOSED else -1
    return LedgerMetadata(
        ensemble_size=ensemble,
        write_quorum=write,
        ack_quorum=draw(st.integers(1, write)),
        ensembles=tuple((first, draw(bookies)) for first in firsts),
        state=state,
        last_entry=last,
        length=draw(st.integers(0, 2**62)) if last >= 0 else 0,
        digest_type=draw(st.sampled_from(["CRC32", "HMAC", "CRC32C", "DUMMY"])),
        password=draw(st.binary(max_size=20)),
        custom=tuple(sorted(draw(st.dictionaries(st.text(max_size=10), st.binary(max_size=10), max_size=3)).items())),
        ctoken=draw(st.integers(-(2**63), 2**63 - 1)),
        ctime=draw(st.none() | st.integers(0, 2**62)),
    )


@given(metadatas())
def test_what_is_written_is_read(metadata: LedgerMetadata) -> None:
    assert ledger_metadata.decode(ledger_metadata.encode(metadata)) == metadata


@given(st.binary(max_size=200), st.sampled_from([1, 2, 3]))
def test_garbage_is_corrupt_data_and_nothing_else(body: bytes, version: int) -> None:
    try:
        ledger_metadata.decode(HEADER + b"%d\n" % version + body)
    except CorruptData:
        pass
