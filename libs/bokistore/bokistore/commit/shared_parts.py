"""Parts of one transaction that run in several processes: what goes to who runs one, and what comes back. Pure.

A part reads where the transaction reads, with all that was written in it so far on top. What it read and what it wrote come back as data:
nothing of it is in the store before the transaction commits, in one record that expects all that any part of it read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from bokilib.records.isolation import Isolation
from bokistore.model.events import Commit, Deleted, Entry, Expires, Ops

Staged: TypeAlias = Ops | Commit | Deleted | Expires | Entry


class Context(msgspec.Struct, array_like=True, frozen=True):
    """What a part begins with.

    Attributes:
        place: where the transaction reads. isolation: what it will expect. events: what was written in it so far.
    """

    place: int
    isolation: Isolation
    events: tuple[Staged, ...] = ()


_encoder: Final = msgspec.msgpack.Encoder()
_contexts: Final = msgspec.msgpack.Decoder(Context)
_streams: Final = msgspec.msgpack.Decoder(tuple[str, ...])
_events: Final = msgspec.msgpack.Decoder(tuple[Staged, ...])


def encode_context(context: Context) -> bytes:
    """For who runs a part."""
    return _encoder.encode(context)


def decode_context(data: bytes) -> Context:
    """Raises msgspec.DecodeError: a later version wrote it."""
    return _contexts.decode(data)


def encode_read(streams: Iterable[str]) -> bytes:
    """Streams that a part read."""
    return _encoder.encode(tuple(streams))


def decode_read(data: bytes) -> tuple[str, ...]:
    """Streams that a part read, from the bytes of `encode_read`."""
    return _streams.decode(data)


def encode_written(events: Iterable[object]) -> bytes:
    """What a part wrote; nothing is no bytes."""
    several = tuple(events)
    return _encoder.encode(several) if several else b""


def decode_written(data: bytes) -> tuple[Staged, ...]:
    """What a part wrote, from the bytes of `encode_written`."""
    return _events.decode(data) if data else ()
