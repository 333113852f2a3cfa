"""Wire format of transactions that run in several processes: what a part receives, and what it returns. Pure.

A part reads at the snapshot of its transaction, with all earlier writes of the transaction on top. Its reads and writes return as data.
Nothing of it is in the store before the transaction commits, in one record that expects all streams that any part read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from bokilib.records.isolation import Isolation
from bokistore.model.events import Commit, Deleted, Entry, Expires, Ops

Staged: TypeAlias = Ops | Commit | Deleted | Expires | Entry


class Context(msgspec.Struct, array_like=True, frozen=True):
    """State from which a part begins.

    Attributes:
        place: where the transaction reads.
        isolation: its level.
        events: its writes so far.
    """

    place: int
    isolation: Isolation
    events: tuple[Staged, ...] = ()


_encoder: Final = msgspec.msgpack.Encoder()
_contexts: Final = msgspec.msgpack.Decoder(Context)
_streams: Final = msgspec.msgpack.Decoder(tuple[str, ...])
_events: Final = msgspec.msgpack.Decoder(tuple[Staged, ...])


def encode_context(context: Context) -> bytes:
    """Encode a context, for the process that runs the part."""
    return _encoder.encode(context)


def decode_context(data: bytes) -> Context:
    """Decode a context. Raises msgspec.DecodeError: a later version wrote it."""
    return _contexts.decode(data)


def encode_read(streams: Iterable[str]) -> bytes:
    """Encode the streams that a part read."""
    return _encoder.encode(tuple(streams))


def decode_read(data: bytes) -> tuple[str, ...]:
    """Decode the streams that a part read."""
    return _streams.decode(data)


def encode_written(events: Iterable[object]) -> bytes:
    """Encode the writes of a part; no writes are no bytes."""
    several = tuple(events)
    return _encoder.encode(several) if several else b""


def decode_written(data: bytes) -> tuple[Staged, ...]:
    """Decode the writes of a part."""
    return _events.decode(data) if data else ()
