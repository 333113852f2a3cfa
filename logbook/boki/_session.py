"""What a session has seen: the highest metalog position per physical log (DESIGN §5), and its form for other processes.

Each request carries the session's token and each reply raises it, so a session's view never goes back, whichever engine
answers. One position per log, never one maximum over logs: terms of different logs say nothing about each other.

    text form: "boki1." + base64url of (token as in `engine_protocol` | crc32c u32, little endian), without padding
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

import crc32c as _crc32c

from boki_common import engine_protocol
from boki_common.engine_protocol import Token
from boki_common.errors import InvalidArgument, ProtocolError
from boki_common.ids import Position

_PREFIX: Final = "boki1."
_CRC_BYTES: Final = 4
_NOWHERE: Final = Position(0, 0)


class Session:
    """The token of one session. Positions only grow.

    Attributes:
        last_merged: the token that was merged last; all rows of one ANSWERS share one.
    """

    __slots__ = ("_packed", "last_merged", "positions")

    def __init__(self, positions: Token | None = None) -> None:
        self.positions: dict[int, Position] = dict(positions or {})
        self.last_merged: Token | None = None
        self._packed = b""

    def merge(self, token: Token) -> None:
        """Takes note of what a reply has seen."""
        self.last_merged = token
        self._packed = b""
        positions = self.positions
        for log, position in token.items():
            if position > positions.get(log, _NOWHERE):
                positions[log] = position

    def packed(self) -> bytes:
        """The token as it travels; kept while nothing new is seen."""
        packed = self._packed
        if not packed:
            packed = self._packed = engine_protocol.encode_token(self.positions)
        return packed


class View:
    """What one session sees of one book.

    Attributes:
        position: highest seqnum that the session's view of the book's log covers; 0 before anything was seen.
    """

    __slots__ = ("book", "position", "session")

    def __init__(self, session: Session, book: int) -> None:
        self.session = session
        self.book = book
        self.position = 0

    def saw(self, token: Token, position: int) -> None:
        """Takes note of what a reply has seen."""
        session = self.session
        if token is not session.last_merged and token != session.positions:
            session.merge(token)
        if position > self.position:
            self.position = position

    def saw_one(self, log: int, reached: Position, position: int) -> None:
        """`saw`, of a token of one log."""
        if self.session.positions.get(log) != reached:
            self.session.merge({log: reached})
        if position > self.position:
            self.position = position


def token_text(token: Token) -> str:
    """The text form of a token: safe in URLs, headers and environment variables."""
    packed = engine_protocol.encode_token(token)
    crc = _crc32c.crc32c(packed).to_bytes(_CRC_BYTES, "little")
    return _PREFIX + urlsafe_b64encode(packed + crc).decode().rstrip("=")


def parse_token(text: str) -> dict[int, Position]:
    """Reads the text form. Raises InvalidArgument."""
    if not isinstance(text, str) or not text.startswith(_PREFIX):
        raise InvalidArgument(f"expected a session token ({_PREFIX}…) from client.session_token(), found {text!r:.80}")
    encoded = text.removeprefix(_PREFIX)
    try:
        raw = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
        packed, crc = raw[:-_CRC_BYTES], raw[-_CRC_BYTES:]
        if _crc32c.crc32c(packed).to_bytes(_CRC_BYTES, "little") != crc:
            raise InvalidArgument("a session token is damaged: its checksum does not match; was it cut off?")
        token, rest = engine_protocol.decode_token(memoryview(packed))
    except (binascii.Error, ValueError, ProtocolError) as fault:
        if isinstance(fault, InvalidArgument):
            raise
        raise InvalidArgument(f"a session token is damaged: {fault}; was it cut off?") from fault
    if len(rest):
        raise InvalidArgument(f"a session token is damaged: {len(rest)} bytes follow it")
    return token
