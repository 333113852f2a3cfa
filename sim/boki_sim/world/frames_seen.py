"""The frames in a stream of bytes, seen from outside: how many ended, and how each of them begins. Pure.

Both protocols have the frame's length before it, in four bytes; what a frame is follows from the first few after them
(`steps.of_frame`). Nothing is copied but these.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

_LENGTH: Final = Struct(">I")
PREFIX_BYTES: Final = _LENGTH.size
HEAD_BYTES: Final = 6
"""Enough to know the operation."""


class FramesSeen:
    """One direction of one connection."""

    __slots__ = ("_carried", "_head", "_left")

    def __init__(self) -> None:
        self._carried = b""
        """The beginning of a frame whose head is not complete."""
        self._head = b""
        self._left = 0
        """Bytes still to come of the frame that began with `_head`."""

    def take(self, piece: bytes) -> list[bytes]:
        """The next bytes of the stream; returns the heads of the frames that end in them."""
        if not (self._left or self._carried):
            head = piece[PREFIX_BYTES : PREFIX_BYTES + HEAD_BYTES]
            if head and PREFIX_BYTES + _LENGTH.unpack_from(piece)[0] == len(piece):
                return [head]  # one frame, as a rule
        heads: list[bytes] = []
        at = 0
        if self._left:
            if len(piece) < self._left:
                self._left -= len(piece)
                return heads
            heads.append(self._head)
            at, self._left = self._left, 0
        elif self._carried:
            piece, self._carried = self._carried + piece, b""
        end = len(piece)
        while end - at >= PREFIX_BYTES:
            stop = at + PREFIX_BYTES + _LENGTH.unpack_from(piece, at)[0]
            head = piece[at + PREFIX_BYTES : min(stop, at + PREFIX_BYTES + HEAD_BYTES)]
            if stop > end:
                if len(head) == HEAD_BYTES:
                    self._head, self._left = head, stop - end
                    return heads
                break
            heads.append(head)
            at = stop
        self._carried = piece[at:]
        return heads
