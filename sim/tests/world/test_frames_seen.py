"""Frames are counted and distinguished however the stream is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boki_sim.world.frames_seen import HEAD_BYTES, FramesSeen


@given(frames=st.lists(st.binary(max_size=40)), cuts=st.lists(st.integers(0, 400)))
def test_heads_are_those_of_the_frames_wherever_the_stream_is_cut(frames: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    seen, heads, before = FramesSeen(), [], 0
    for cut in [*sorted(min(cut, len(stream)) for cut in cuts), len(stream)]:
        heads += seen.take(stream[before:cut])
        before = cut
    assert heads == [frame[:HEAD_BYTES] for frame in frames]


def test_a_frame_counts_when_it_has_ended() -> None:
    seen = FramesSeen()
    assert seen.take((20).to_bytes(4, "big") + b"a" * 19) == []
    assert seen.take(b"a" + (1).to_bytes(4, "big")) == [b"a" * HEAD_BYTES]
    assert seen.take(b"b") == [b"b"]
