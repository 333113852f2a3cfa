"""What a session has seen: the highest metalog position per physical log (DESIGN §5), and its form for other processes.

Each request carries the session's token and each reply raises it, so a session's view never goes back, whichever engine
answers. One position per log, never one maximum over logs: terms of different logs say nothing about each other.

    text form: "boki2." + base64url of (cluster u64 | token as in `engine_protocol` | crc32c u32), little endian, without padding
               "boki1." + the same without the cluster: of an earlier version, or of an engine that does not say its cluster

`cluster` is xxh3-64 of what the engine calls its cluster in HELLO. Positions of another one mean nothing here: who would wait for
them waits in vain, or for too little, so a token of another cluster is refused.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NamedTuple, Protocol

import crc32c as _crc32c
from xxhash import xxh3_64_intdigest

from boki_common.engine import engine_protocol
from boki_common.engine.engine_protocol import Token
from boki_common.errors import InvalidArgument, ProtocolError, WrongCluster
from boki_common.ids import Position

_PREFIX: Final = "boki2."
_PREFIX_BEFORE: Final = "boki1."
_CLUSTER_BYTES: Final = 8
_CRC_BYTES: Final = 4
_NOWHERE: Final = Position(0, 0)


class Session:
    """The token of one session. Positions only grow. `last_merged`: the token that was merged last; all rows of one ANSWERS
    share one."""

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

    def covered_by(self, token: Token) -> bool:
        """Whether it has seen no more than this."""
        own = self.positions
        return own == token or all(position <= token.get(log, _NOWHERE) for log, position in own.items())

    def packed(self) -> bytes:
        """The token as it travels; kept while nothing new is seen."""
        packed = self._packed
        if not packed:
            packed = self._packed = engine_protocol.encode_token(self.positions)
        return packed


class BookView(Protocol):
    """What one session sees of one book."""

    @property
    def session(self) -> Session: ...

    @property
    def book(self) -> int: ...

    @property
    def position(self) -> int:
        """Highest seqnum that the session's view of the book's log covers; 0 before anything was seen."""

    def saw(self, token: Token, position: int) -> None:
        """Takes note of what a reply has seen."""

    def saw_one(self, log: int, reached: Position, position: int) -> None:
        """`saw`, of a token of one log."""

    def reached(self, position: int) -> None:
        """The session has seen so much of the book."""


class TokenText(NamedTuple):
    """What a text form says."""

    positions: dict[int, Position]
    cluster: int | None
    """None: it does not say."""


def cluster_mark(name: str) -> int | None:
    """What stands for a cluster in tokens, by what its engines call it; None for one without a name."""
    return xxh3_64_intdigest(name.encode()) if name else None


def token_text(token: Token, cluster: int | None) -> str:
    """The text form of a token: safe in URLs, headers and environment variables."""
    packed = engine_protocol.encode_token(token)
    if cluster is not None:
        packed = cluster.to_bytes(_CLUSTER_BYTES, "little") + packed
    crc = _crc32c.crc32c(packed).to_bytes(_CRC_BYTES, "little")
    prefix = _PREFIX_BEFORE if cluster is None else _PREFIX
    return prefix + urlsafe_b64encode(packed + crc).decode().rstrip("=")


def parse_token(text: str) -> TokenText:
    """Reads the text form. Raises InvalidArgument."""
    if not isinstance(text, str) or not text.startswith((_PREFIX, _PREFIX_BEFORE)):
        raise InvalidArgument(f"expected a session token ({_PREFIX}…) from client.session_token(), found {text!r:.80}")
    encoded = text[len(_PREFIX) :]
    cluster = None
    try:
        raw = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
        packed, crc = raw[:-_CRC_BYTES], raw[-_CRC_BYTES:]
        if _crc32c.crc32c(packed).to_bytes(_CRC_BYTES, "little") != crc:
            raise InvalidArgument("a session token is damaged: its checksum does not match; was it cut off?")
        if text.startswith(_PREFIX):
            if len(packed) < _CLUSTER_BYTES:
                raise InvalidArgument("a session token is damaged: it ends within its cluster; was it cut off?")
            cluster, packed = int.from_bytes(packed[:_CLUSTER_BYTES], "little"), packed[_CLUSTER_BYTES:]
        token, rest = engine_protocol.decode_token(memoryview(packed))
    except (binascii.Error, ValueError, ProtocolError) as fault:
        if isinstance(fault, InvalidArgument):
            raise
        raise InvalidArgument(f"a session token is damaged: {fault}; was it cut off?") from fault
    if len(rest):
        raise InvalidArgument(f"a session token is damaged: {len(rest)} bytes follow it")
    return TokenText(token, cluster)


def positions_of(text: str, cluster: int | None) -> dict[int, Position]:
    """What a session of this cluster has seen, by its token. Raises InvalidArgument: no token, or a damaged one; WrongCluster:
    it is of another cluster."""
    found = parse_token(text)
    if None not in (cluster, found.cluster) and found.cluster != cluster:
        raise WrongCluster(
            f"expected a session token of the cluster that this client is connected to ({cluster:016x}), found one of another "
            f"({found.cluster:016x}): what it has seen is not here; begin without it, or connect where it comes from",
            expected=cluster,
            found=found.cluster,
        )
    return found.positions
