"""Recorded frames, damaged in every way: a decoder takes them or raises an error of ours, and allocates no more than they are."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.bookkeeper import availability, v2, v3
from boki_common.errors import BokiError

VECTORS: Final = Path(__file__).parents[1] / "vectors" / "bookkeeper"
RECORDED: Final = tuple(
    dict.fromkeys(
        bytes.fromhex(text)[4:]
        for path in sorted(VECTORS.glob("*v[23]-*.txt"))
        for text in re.findall(r"^(?:request|response)\.\d+: ([0-9a-f]+)$", path.read_text(), re.MULTILINE)
    )
)
DECODERS: Final[tuple[Callable[[memoryview], object], ...]] = (
    v2.decode_request, v2.decode_response, v3.decode_request, v3.decode_response, availability.decode,
)  # fmt: skip
OBJECTS_BYTES: Final = 64 * 1024
"""What a decoder may allocate for any frame: the objects that say what it means."""


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A recorded frame with bytes changed, cut out, put in, or cut off."""
    frame = bytearray(draw(st.sampled_from(RECORDED)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(frame)))
        change = draw(st.sampled_from(("change", "remove", "insert", "cut", "number")))
        if change == "change" and at < len(frame):
            frame[at] = draw(st.integers(0, 255))
        elif change == "remove":
            del frame[at : at + draw(st.integers(1, 20))]
        elif change == "insert":
            frame[at:at] = draw(st.binary(min_size=1, max_size=20))
        elif change == "cut":
            del frame[at:]
        else:
            frame[at : at + 8] = draw(
                st.sampled_from((b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7), bytes(8)))
            )
    return bytes(frame)


@pytest.mark.parametrize(
    "decode", DECODERS, ids=lambda decode: f"{decode.__module__.rpartition('.')[2]}-{decode.__name__}"
)
@given(frame=damaged())
def test_a_damaged_frame_never_crashes_a_decoder(decode: Callable[[memoryview], object], frame: bytes) -> None:
    try:
        decode(memoryview(frame))
    except BokiError:
        pass


@given(frame=damaged())
def test_a_damaged_frame_makes_no_decoder_allocate_more_than_it_is(frame: bytes) -> None:
    tracemalloc.start()
    try:
        for decode in DECODERS:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                decode(memoryview(frame))
            except BokiError:
                pass
            assert tracemalloc.get_traced_memory()[1] - before < OBJECTS_BYTES + 8 * len(frame)
    finally:
        tracemalloc.stop()
