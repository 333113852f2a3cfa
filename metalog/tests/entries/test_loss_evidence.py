"""Evidence of a loss: a format of its own, bounded, read in every version; what is damaged is shown as such and hurts nobody."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common import limits
from boki_common.errors import CorruptData, VersionMismatch
from boki_metalog.entries import loss_evidence
from boki_metalog.entries.loss_evidence import (
    LossEvidence,
    decode_evidence,
    described,
    encode_evidence,
    in_short,
    lines_of,
)
from boki_metalog.entries.metalog_entry import Lost, MetalogEntry, decode, encode

FIRE = LossEvidence(
    version=2,
    ledger=31,
    first=4711,
    stop=4714,
    indexed=True,
    bookies_are_gone=True,
    reason="a fire, ticket 17",
    by="ops@host-3",
    time_ms=1_767_225_600_000,
    answers={"4711": "NoSuchEntry: all 2 replicas deny it", "4712": "EntryUnknown: down"},
    bookies={"4711": {"h1:3181": "never had it", "h2:3181": "gave no answer"}},
)
OF_VERSION_1 = (
    b'{"ledger":31,"first":4711,"stop":4712,"indexed":true,"reason":"a fire","bookies_are_gone":false,'
    b'"answers":{"4711":"NoSuchLedger: no ledger 31"}}'
)


def test_its_bytes_are_a_format() -> None:
    data = encode_evidence(FIRE)
    assert data == (
        b'{"version":2,"ledger":31,"first":4711,"stop":4714,"indexed":true,"bookies_are_gone":true,'
        b'"reason":"a fire, ticket 17","by":"ops@host-3","time_ms":1767225600000,'
        b'"answers":{"4711":"NoSuchEntry: all 2 replicas deny it","4712":"EntryUnknown: down"},'
        b'"bookies":{"4711":{"h1:3181":"never had it","h2:3181":"gave no answer"}}}'
    )
    assert decode_evidence(data) == FIRE


def test_a_person_reads_who_when_why_and_which_bookie_said_what() -> None:
    data = encode_evidence(FIRE)
    assert in_short(data) == "given up on 2026-01-01T00:00:00+00:00 by ops@host-3: a fire, ticket 17"
    assert lines_of(described(data)) == [
        in_short(data),
        "entry 4711 of ledger 31: NoSuchEntry: all 2 replicas deny it",
        "  h1:3181: never had it",
        "  h2:3181: gave no answer",
        "entry 4712 of ledger 31: EntryUnknown: down",
        "and 1 entries more",
        "bookies that did not answer were said to be gone for good",
    ]


def test_evidence_of_earlier_versions_is_read() -> None:
    found = decode_evidence(OF_VERSION_1)
    assert (found.version, found.reason, found.by, found.answers) == (
        1, "a fire", "", {"4711": "NoSuchLedger: no ledger 31"},
    )  # fmt: skip
    assert in_short(OF_VERSION_1) == "given up: a fire"
    assert lines_of(described(OF_VERSION_1))[1].endswith("NoSuchLedger: no ledger 31")
    assert decode_evidence(b"{}") == LossEvidence() and lines_of(described(b"{}")) == ["nobody said why"]


@pytest.mark.parametrize(
    ("data", "error", "match"),
    [
        (b"", CorruptData, "no evidence"),
        (b"garbage \xff", CorruptData, "no evidence"),
        (b"[" * 9_000, CorruptData, "no evidence"),
        (b'{"version":2,"first":"x"}', CorruptData, "no evidence"),
        (b'{"version":2,"unheard":1}', CorruptData, "no evidence"),
        (b'{"version":3,"unheard":1}', VersionMismatch, "upgrade"),
        (bytes(limits.LOST_EVIDENCE_BYTES + 1), CorruptData, "at most"),
    ],
)
def test_what_is_damaged_or_newer_is_an_error_that_says_so(data: bytes, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        decode_evidence(data)
    first, second = lines_of(described(data))
    assert "cannot be read" in first and str(len(data)) in second and len(second) < 1_000
    assert in_short(data) == ""


@given(st.integers(0, 400), st.integers(1, 255), st.booleans())
def test_no_changed_byte_hurts_who_reads_it(at: int, bits: int, old: bool) -> None:
    data = bytearray(OF_VERSION_1 if old else encode_evidence(FIRE))
    data[at % len(data)] ^= bits
    assert lines_of(described(data))
    in_short(data)
    command = Lost(1, 0, 0, 1, bytes(data))
    entry = MetalogEntry(0, 0, 5, (), (command,))
    assert decode(encode(entry)).commands == (command,), "an engine never looks into it"


@given(
    st.dictionaries(st.integers(0, 2**40).map(str), st.text(max_size=500), max_size=16),
    st.text(max_size=2_000),
    st.integers(1, 7),
)
def test_it_always_fits_and_the_first_entries_are_kept(answers: dict[str, str], reason: str, copies: int) -> None:
    bookies = {entry: {f"h{at}:3181": answer for at in range(copies)} for entry, answer in answers.items()}
    evidence = LossEvidence(reason=reason, by=reason, answers=answers, bookies=bookies)
    data = encode_evidence(evidence)
    assert len(data) <= limits.LOST_EVIDENCE_BYTES
    found = decode_evidence(data)
    kept = sorted(answers, key=int)[: len(found.answers)]
    assert [*sorted(found.answers, key=int)] == kept == [*sorted(found.bookies, key=int)]
    assert reason.startswith(found.reason) and msgspec.json.decode(data)["version"] == loss_evidence.VERSION
