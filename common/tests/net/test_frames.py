"""Frames: any split of the stream gives the same frames; lengths are checked before memory is taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.errors import ProtocolError
from boki_common.net.frames import FrameParser, FrameTooLong, prefix


def feed(parser: FrameParser, stream: bytes, sizes: list[int]) -> list[memoryview]:
    """Feeds a stream in reads of at most the given sizes, over and over."""
    frames: list[memoryview] = []
    position = turn = 0
    while position < len(stream):
        free = parser.free or parser.renew()
        assert len(free) > 0
        count = min(len(free), sizes[turn % len(sizes)], len(stream) - position)
        free[:count] = stream[position : position + count]
        frames.extend(parser.received(count))
        position += count
        turn += 1
    return frames


@given(
    st.lists(st.binary(max_size=300), max_size=40),
    st.lists(st.integers(1, 97), min_size=1, max_size=5),
    st.sampled_from([64, 256, 4096]),
)
def test_any_split_gives_the_frames_that_were_sent_and_views_stay_valid(
    payloads: list[bytes], sizes: list[int], buffer_bytes: int
) -> None:
    parser = FrameParser(limit=1000, buffer_bytes=buffer_bytes)
    stream = b"".join(prefix(len(payload)) + payload for payload in payloads)
    frames = feed(parser, stream, sizes)
    assert [bytes(frame) for frame in frames] == payloads  # read only now: nothing was overwritten meanwhile
    assert parser.incomplete_bytes == 0


def test_length_over_the_limit_is_refused_before_anything_is_allocated() -> None:
    parser = FrameParser(limit=1000)
    free = parser.free
    free[:4] = prefix(2**32 - 1)
    with pytest.raises(ProtocolError, match="at most 1000 bytes, found a length of 4294967295"):
        parser.received(4)


def test_large_frame_gets_one_buffer_of_its_size() -> None:
    parser = FrameParser(limit=10_000_000, buffer_bytes=4096)
    payload = bytes(range(256)) * 4000
    (frame,) = feed(parser, prefix(len(payload)) + payload, [1 << 20])
    assert frame == payload


def test_the_buffer_after_large_frames_has_room_for_more_of_them() -> None:
    parser = FrameParser(limit=10_000_000, buffer_bytes=65_536)
    frame = prefix(100_000) + bytes(100_000)
    frames = feed(parser, frame * 4, [1 << 20])
    assert all(one.obj is frames[0].obj for one in frames)
    assert len(parser.free) == 0
    assert len(parser.renew()) == 4 * len(frame), (
        "else the next frame would be copied out of a buffer that is too small"
    )


def test_buffers_are_small_again_when_no_large_frame_comes() -> None:
    parser = FrameParser(limit=10_000_000, buffer_bytes=100_000)
    feed(parser, prefix(200_000) + bytes(200_000), [1 << 20])
    sizes: list[int] = []
    while not sizes or sizes[-1] != 100_000:
        assert len(sizes) < 20
        sizes.append(len(parser.renew()))
        feed(parser, (prefix(996) + bytes(996)) * (sizes[-1] // 1_000), [1 << 20])
    assert len(sizes) > 2, "some more large ones may follow"
    assert max(sizes) <= 4 * 200_004


def test_buffers_grow_with_what_arrives_and_begin_again_after_silence() -> None:
    parser = FrameParser(limit=1_000_000, buffer_bytes=64_000, first_bytes=4_000)
    sizes = [parser.size]
    for _ in range(200):
        feed(parser, prefix(996) + bytes(996), [1 << 20])
        if parser.size != sizes[-1]:
            sizes.append(parser.size)
    assert sizes == [4_000, 8_000, 16_000, 32_000, 64_000]
    parser.rest()
    assert parser.size == 4_000
    assert [len(frame) for frame in feed(parser, prefix(9_000) + bytes(9_000), [700])] == [9_000]


def test_an_incomplete_frame_survives_a_pause() -> None:
    parser = FrameParser(limit=1_000_000)
    feed(parser, prefix(20_000) + bytes(10_000), [1 << 20])
    parser.rest()
    assert [len(frame) for frame in feed(parser, bytes(10_000), [1 << 20])] == [20_000]


@pytest.mark.parametrize("read_bytes", [1, 999, 1 << 20])
def test_a_restricted_peer_gets_no_more_than_thrice_what_arrived(read_bytes: int) -> None:
    parser = FrameParser(limit=5_000_000, buffer_bytes=64_000, first_bytes=4_000)
    parser.restrict(5_000_000)
    arrived = 0
    stream = prefix(300_000) + bytes(300_000)
    for at in range(0, len(stream) - 1, read_bytes):
        while piece := stream[at : min(at + read_bytes, len(stream) - 1)][arrived - at :]:
            free = parser.free or parser.renew()
            count = min(len(free), len(piece))
            free[:count] = piece[:count]
            arrived += count
            assert parser.received(count) == []
            assert parser.size <= max(4_000, 3 * arrived)
    (frame,) = feed(parser, stream[-1:], [1])
    assert frame == stream[4:]


def test_frames_before_one_that_is_too_long_may_lead_to_a_larger_limit() -> None:
    parser = FrameParser(limit=1_000_000)
    parser.restrict(10)
    stream = prefix(3) + b"abc" + prefix(11) + b"eleven byte" + prefix(1) + b"x"
    parser.free[: len(stream)] = stream
    with pytest.raises(FrameTooLong, match="at most 10 bytes, found a length of 11") as raised:
        parser.received(len(stream))
    assert raised.value.frames == [b"abc"]
    parser.trust(1_000_000)
    assert parser.received(0) == [b"eleven byte", b"x"]


def test_what_comes_behind_a_frame_that_is_too_long_takes_no_memory() -> None:
    parser = FrameParser(limit=10)
    for piece in (prefix(11), bytes(4_000), prefix(3) + b"abc"):
        free = parser.free or parser.renew()
        free[: len(piece)] = piece
        with pytest.raises(FrameTooLong):
            parser.received(len(piece))
        parser.discard()
        assert parser.size == 4_096
