"""Content-Encoding of bodies: which are read, and how they are undone within a bound. Pure.

    decoder = decoder_of(headers)                    # None: the body is as it was sent
    for part in decoder.feed(piece): ...             # at most PART_BYTES each: the caller counts them, and yields between two
    decoder.finish()

A part is also given, empty, at the end of each gzip member, so that none costs more than a millisecond. There are at most `MEMBERS`:
an empty one stands for nothing, and no bound on what is decoded counts it.
What an encoding is not known by this server is refused, and so is a body that is not what its header says.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

from boki_common.errors import InvalidArgument
from boki_common.limits import KIB
from boki_gateway.errors import BodyTooLarge, UnsupportedEncoding

IDENTITY: Final = "identity"
WINDOW_BITS: Final = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""Content-Encoding → window bits by which zlib knows the format: RFC 1952, RFC 1950."""
KNOWN: Final = ", ".join(WINDOW_BITS)
PART_BYTES: Final = 256 * KIB
MEMBERS: Final = 1_024
"""Of one gzip body; programs that compress in parallel make one per 64 KiB or more."""


class Decoder:
    """Undoes one encoding; gzip may consist of several members."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._members = 1
        self._zlib = zlib.decompressobj(WINDOW_BITS[encoding])

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decode the next piece of a body. Raises InvalidArgument, BodyTooLarge."""
        while data:
            if self._zlib.eof:
                self._begin_member()
            try:
                part = self._zlib.decompress(data, PART_BYTES)
            except zlib.error as fault:
                raise self._fault(str(fault)) from fault
            yield part
            data = self._zlib.unused_data if self._zlib.eof else self._zlib.unconsumed_tail

    def finish(self) -> None:
        """The body is at its end. Raises InvalidArgument unless what it stands for is too."""
        if not self._zlib.eof:
            raise self._fault("that it ends early")

    def _begin_member(self) -> None:
        if self._encoding != "gzip":
            raise self._fault("more behind its end")
        self._members += 1
        if self._members > MEMBERS:
            raise BodyTooLarge(f"expected a body of at most {MEMBERS} gzip members, found more", expected=MEMBERS)
        self._zlib = zlib.decompressobj(WINDOW_BITS[self._encoding])

    def _fault(self, found: str) -> InvalidArgument:
        return InvalidArgument(f"expected a body in {self._encoding} as Content-Encoding says, found {found}")


def decoder_of(encoding: str | None) -> Decoder | None:
    """The decoder for a Content-Encoding; None when there is nothing to undo. Raises UnsupportedEncoding."""
    name = (encoding or IDENTITY).strip().lower()
    if name == IDENTITY:
        return None
    if name not in WINDOW_BITS:
        raise UnsupportedEncoding(
            f"expected Content-Encoding {KNOWN} or none, found {encoding!r:.80}", expected=KNOWN, found=name[:80]
        )
    return Decoder(name)
