"""Length-prefixed frames: how bytes of a stream become frames. Pure: no sockets, no loop.

    offset  size  field
    0       4     length of what follows, big endian, not counting itself
    4       n     the frame's payload: BookKeeper's protocol or one of ours

Payloads are handed out as memoryviews of the receive buffer. A buffer whose views were handed out is never written
again, so a view stays valid for as long as somebody keeps it; keeping one keeps its whole buffer. Nothing is copied but the
incomplete frame at the end of a full buffer.

Buffers begin small and double, each when the one before is full, up to 256 KiB, or room for four of the frames that do not
fit, up to 2 MiB or one frame; once such a frame came the following buffers are as large, for a while, so that no frame begins
in one that is too small. Of a peer that is not trusted yet (`restrict`) none is larger than thrice what arrived, whatever
length was announced.

Lengths are checked before anything is allocated for them.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from boki_common import limits
from boki_common.errors import ProtocolError
from boki_common.runtime.heap import unfilled

_LENGTH: Final = Struct(">I")
_length_at: Final = _LENGTH.unpack_from
PREFIX_BYTES: Final = _LENGTH.size
_LEAST_FREE_BYTES: Final = 8 * limits.KIB
_LEAST_FREE_PART: Final = 4
"""Of a small buffer, this part."""
_FRAMES_A_BUFFER: Final = 4
_LARGE_BUFFER_BYTES: Final = 2 * limits.MIB
_LARGE_BUFFERS: Final = 8
"""So many are large after the last frame that did not fit into a usual one."""

_NO_LENGTH: Final = 2**32 - 1

_NO_BUFFER: Final = memoryview(b"")

prefix = _LENGTH.pack
"""The four bytes before a frame of the given length."""


class FrameTooLong(ProtocolError):
    """A length is over the limit. `frames` came before it, and wait to be handled."""

    frames: list[memoryview]


class FrameParser:
    """Receive buffers and the frames in them.

    Invariant: bytes before `_start` were handed out, bytes in `_start:_end` are an incomplete frame, bytes from `_end` on
    are `free`, if they are enough for the next read to be worth its while. `limit` bounds one frame without its prefix.
    """

    __slots__ = (
        "_buffer_bytes",
        "_end",
        "_first_bytes",
        "_large_bytes",
        "_large_left",
        "_least_free",
        "_limit",
        "_restricted",
        "_start",
        "_usual_bytes",
        "_view",
        "_wanted",
        "free",
        "size",
    )

    def __init__(
        self,
        *,
        limit: int,
        buffer_bytes: int = limits.CONNECTION_BUFFER_BYTES,
        first_bytes: int = limits.CONNECTION_FIRST_BUFFER_BYTES,
    ) -> None:
        self._limit = limit
        self._restricted = False
        self._buffer_bytes = buffer_bytes
        self._first_bytes = self._usual_bytes = min(first_bytes, buffer_bytes)
        self._large_bytes = 0
        """Of buffers, as long as some are `_large_left`."""
        self._large_left = 0
        self._start = self._end = 0
        self._wanted = 1
        self.free = _NO_BUFFER
        """Where the next bytes of the stream go. Empty: `renew` gives it. An attribute, as each read asks for it."""
        self.size = 0
        """Of the buffer."""
        self._take_buffer(self._usual_bytes)

    @property
    def incomplete_bytes(self) -> int:
        """Bytes of a frame that has not ended yet."""
        return self._end - self._start

    def restrict(self, limit: int) -> None:
        """Until `trust`: frames of at most `limit` bytes, and no buffer of more than thrice what arrived."""
        self._limit = limit
        self._restricted = True

    def trust(self, limit: int) -> None:
        """Ends `restrict`, also for frames that came already."""
        self._limit = limit
        self._restricted = False

    def received(self, count: int) -> list[memoryview]:
        """Takes note of `count` new bytes in `free`; returns the frames that are complete now.

        Raises:
            FrameTooLong: a length is over the limit; the stream cannot be used any more, unless the frames before it lead to
                a larger one: then `received(0)` goes on.
        """
        view, start = self._view, self._start
        self._end = end = self._end + count
        frames: list[memoryview] = []
        wanted = self._least_free
        while end - start >= PREFIX_BYTES:
            length: int = _length_at(view, start)[0]
            if length > self._limit:
                self._start = start
                raise self._too_long(length, frames)
            begin = start + PREFIX_BYTES
            stop = begin + length
            if stop > end:
                if not self._restricted:
                    wanted = stop - end  # the rest of a known frame
                break
            if stop == end:  # the last one, and mostly the only one
                frames = [*frames, view[begin:end]]
                start = end
                break
            frames.append(view[begin:stop])
            start = stop
        self._start = start
        self._wanted = wanted
        self.free = view[end:] if self.size - end >= wanted else _NO_BUFFER
        return frames

    def renew(self) -> memoryview:
        """A new buffer's `free`, never empty. Not before it is needed: what the old one held is mostly gone by then."""
        held = self._view[self._start : self._end]
        needed = len(held) + self._wanted
        self._usual_bytes = min(max(2 * self._usual_bytes, needed), self._buffer_bytes)
        size = max(self._usual_bytes, needed)
        if self._restricted:
            size = max(size, 2 * len(held))
        elif needed > self._buffer_bytes:
            self._large_bytes = min(_FRAMES_A_BUFFER * needed, _LARGE_BUFFER_BYTES)
            self._large_left = _LARGE_BUFFERS
        if self._large_left:
            self._large_left -= 1
            size = max(needed, self._large_bytes)
        self._take_buffer(size)
        self._view[: len(held)] = held
        self._start, self._end = 0, len(held)
        self.free = self._view[self._end :]
        return self.free

    def discard(self) -> None:
        """After a length over the limit: forgets what came behind it, and will again and again."""
        self._view[:PREFIX_BYTES] = prefix(_NO_LENGTH)
        self._start, self._end = 0, PREFIX_BYTES
        self.free = self._view[PREFIX_BYTES:]

    def rest(self) -> None:
        """Nothing came for long: begins with a small buffer again, unless a frame is incomplete."""
        if self._start == self._end and self.size > self._first_bytes:
            self._usual_bytes = self._first_bytes
            self._large_left = self._start = self._end = 0
            self._take_buffer(self._first_bytes)

    def release(self) -> None:
        """Drops the buffer: nothing more will come. Views of it stay valid."""
        self._view = self.free = _NO_BUFFER
        self._start = self._end = self.size = 0

    def _take_buffer(self, size: int) -> None:
        self.size = size
        self._least_free = max(1, min(_LEAST_FREE_BYTES, size // _LEAST_FREE_PART))
        self.free = self._view = memoryview(unfilled(size))

    def _too_long(self, length: int, frames: list[memoryview]) -> FrameTooLong:
        error = FrameTooLong(
            f"expected a frame of at most {self._limit} bytes, found a length of {length}; "
            "is the peer speaking another protocol?",
            expected=self._limit,
            found=length,
        )
        error.frames = frames
        return error
