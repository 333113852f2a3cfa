"""Bodies in an encoding: undone within a bound, and refused when they are not what their header says."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.errors import InvalidArgument
from boki_gateway.calls.encodings import MEMBERS, PART_BYTES, Decoder, decoder_of
from boki_gateway.errors import BodyTooLarge, UnsupportedEncoding


def decoded(encoding: str, *pieces: bytes) -> bytes:
    decoder = decoder_of(encoding)
    assert decoder is not None
    found = b"".join(part for piece in pieces for part in decoder.feed(piece))
    decoder.finish()
    return found


@given(data=st.binary(max_size=2_000), cut=st.integers(0, 300), encoding=st.sampled_from(["gzip", "deflate", " GZip "]))
def test_a_body_comes_back_however_it_is_cut(data: bytes, cut: int, encoding: str) -> None:
    encoded = (
        zlib.compress(data) if encoding == "deflate" else gzip.compress(data[:50], mtime=0) + gzip.compress(data[50:])
    )
    assert decoded(encoding, encoded[:cut], encoded[cut:]) == data


@pytest.mark.parametrize("encoding", [None, "", "identity", "Identity"])
def test_a_body_without_an_encoding_is_as_it_was_sent(encoding: str | None) -> None:
    assert decoder_of(encoding) is None


@pytest.mark.parametrize("encoding", ["br", "zstd", "compress", "gzip, gzip", "x"])
def test_an_unknown_encoding_is_refused_by_name(encoding: str) -> None:
    with pytest.raises(UnsupportedEncoding, match="expected Content-Encoding gzip, deflate or none, found"):
        decoder_of(encoding)


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("gzip", b'{"text": "x"}'),
        ("gzip", b""),
        ("gzip", gzip.compress(b"x", mtime=0)[:-1]),
        ("gzip", gzip.compress(b"x", mtime=0) + b"more"),
        ("deflate", b"{}"),
        ("deflate", zlib.compress(b"x") + b"more"),
        ("deflate", zlib.compress(b"x")[:-1]),
    ],
)
def test_a_body_that_is_something_else_is_refused(encoding: str, data: bytes) -> None:
    with pytest.raises(InvalidArgument, match=f"expected a body in {encoding} as Content-Encoding says, found"):
        decoded(encoding, data)


def test_a_bomb_comes_in_parts_that_can_be_counted() -> None:
    decoder = Decoder("gzip")
    bomb = gzip.compress(bytes(64 * PART_BYTES))
    parts = decoder.feed(bomb)
    assert [len(next(parts)) for _ in range(3)] == [PART_BYTES] * 3


def test_members_that_stand_for_nothing_are_counted() -> None:
    member = gzip.compress(b"", mtime=0)
    assert decoded("gzip", member * MEMBERS) == b""
    parts = Decoder("gzip").feed(member * (MEMBERS + 1))
    assert [len(next(parts)) for _ in range(MEMBERS)] == [0] * MEMBERS, (
        "each is a part, between which others have their turn"
    )
    with pytest.raises(BodyTooLarge, match=f"at most {MEMBERS} gzip members, found more"):
        next(parts)
