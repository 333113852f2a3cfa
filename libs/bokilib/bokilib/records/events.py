"""The format of library records: an envelope with events of one or more libraries. Pure.

    record   msgpack array  [version, by, seen, events]
    version  1: events is an array of events. 2: events is [hook, bytes], an array of events that a payload hook sealed
    by       incarnation of the writer: random, one for each start of a program
    seen     seqnum up to which the writer had seen the stream that it wrote for; 0 where that means nothing
    event    msgpack array  [kind, id, …]: kind is "library.name", id the name of the event's subject

- A record is atomic: its events take effect at one place in the log or, if the append is void, not at all.
- A reader takes the events of its own library and skips those of others in the same record.
- An event contains its id, which readers compare, since two ids may share a tag (see `tags`).
- A reader refuses unknown kinds of its own library, since its state would be wrong without them. A kind that ends with "?" has no
  effect on any state, and is skipped. Unknown versions are refused. Unknown fields at the end of an event are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from bokilib.errors import ForeignRecord, UnknownEvent

VERSION: Final = 1
VERSION_HOOKED: Final = 2

E = TypeVar("E", bound="Event")


class Event(msgspec.Struct, array_like=True, frozen=True):
    """Base class of events. Subclasses set `tag="library.name"` and declare the fields of the event, the id first."""


class _Head(msgspec.Struct, array_like=True):
    kind: str
    id: Any = None


class _Frame(msgspec.Struct, array_like=True):
    version: int
    by: str
    seen: int
    events: msgspec.Raw


class Hooked(msgspec.Struct, array_like=True, frozen=True):
    """Encoded events as a payload hook sealed them."""

    hook: str
    data: bytes


class Envelope(msgspec.Struct, frozen=True):
    """The decoded envelope of a record.

    Attributes:
        by: incarnation of the writer.
        seen: seqnum up to which the writer had seen the stream that it wrote for.
        events: one msgpack array for each event, of any library; empty while `hooked` has them.
        hooked: the sealed events, or None.
    """

    by: str
    seen: int
    events: tuple[msgspec.Raw, ...]
    hooked: Hooked | None = None
    packed: msgspec.Raw = msgspec.Raw(b"\x90")
    """The events as one msgpack array, of which all kinds can be decoded at once."""


_encoder: Final = msgspec.msgpack.Encoder()
_frames: Final = msgspec.msgpack.Decoder(_Frame)
_heads: Final = msgspec.msgpack.Decoder(tuple[_Head, ...])
_lists: Final = msgspec.msgpack.Decoder(tuple[msgspec.Raw, ...])
_hooked: Final = msgspec.msgpack.Decoder(Hooked)


def encode(by: str, seen: int, events: Sequence[Event]) -> bytes:
    """Return the data of a record of version 1."""
    return _encoder.encode((VERSION, by, seen, events))


def encode_events(events: Sequence[Event]) -> bytes:
    """Return the bytes that a payload hook seals."""
    return _encoder.encode(events)


def encodable(events: Sequence[Event]) -> bool:
    """Return True if the events can be encoded: an append of others was refused before it was sent."""
    try:
        encode_events(events)
    except Exception:  # noqa: BLE001 - what the append raised says why
        return False
    return True


def encode_hooked(by: str, seen: int, hook: str, data: bytes) -> bytes:
    """Return the data of a record of version 2, with the events that a hook sealed."""
    return _encoder.encode((VERSION_HOOKED, by, seen, (hook, data)))


def open_record(seqnum: int, data: bytes) -> Envelope:
    """Decode the envelope of a record.

    Raises:
        ForeignRecord: no library wrote the record, or it is damaged.
        UnknownEvent: it has an unknown version.
    """
    try:
        frame = _frames.decode(data)
        if frame.version == VERSION:
            return Envelope(frame.by, frame.seen, _lists.decode(frame.events), packed=frame.events)
        if frame.version == VERSION_HOOKED:
            return Envelope(frame.by, frame.seen, (), _hooked.decode(frame.events))
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise ForeignRecord(
            f"record {seqnum} is in a stream of a library, and no library wrote it: {fault}; append under other tags",
            seqnum=seqnum,
        ) from fault
    raise UnknownEvent(
        f"record {seqnum} has version {frame.version}, this program knows {VERSION} and {VERSION_HOOKED}: upgrade it",
        seqnum=seqnum,
        found=frame.version,
    )


def with_events(seqnum: int, envelope: Envelope, opened: bytes) -> Envelope:
    """Return the envelope of a sealed record with the events that its hook opened.

    Raises:
        ForeignRecord: the opened bytes are not a list of events.
    """
    try:
        return Envelope(envelope.by, envelope.seen, _lists.decode(opened), packed=msgspec.Raw(opened))
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise ForeignRecord(
            f"expected a list of events from the payload hook for record {seqnum}, found other bytes: {fault}; is it the hook "
            "that wrote the record?",
            seqnum=seqnum,
            damaged=True,
        ) from fault


def libraries_of(seqnum: int, envelope: Envelope) -> list[str]:
    """Return the names of the libraries with events in a record, each once.

    Raises:
        ForeignRecord: an event is damaged.
    """
    try:
        kinds = [head.kind for head in _heads.decode(envelope.packed)]
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise ForeignRecord(f"an event of record {seqnum} is damaged: {fault}", seqnum=seqnum, damaged=True) from fault
    return list(dict.fromkeys(kind.partition(".")[0] for kind in kinds))


class Picker(Generic[E]):
    """A decoder of the events of one library.

    PICKER: Final[Picker[Ops | Deleted]] = Picker("store", (Ops, Deleted))
    for event in PICKER.of(seqnum, envelope): ...
    """

    def __init__(self, library: str, kinds: Iterable[type[E]]) -> None:
        self._prefix: Final = library + "."
        self._decoders: Mapping[str, msgspec.msgpack.Decoder[E]] = {
            str(kind.__struct_config__.tag): msgspec.msgpack.Decoder(kind) for kind in kinds
        }
        assert all(kind.startswith(self._prefix) for kind in self._decoders), f"kinds begin with {self._prefix}"

    def of(self, seqnum: int, envelope: Envelope, about: str | None = None) -> list[E]:
        """Return the events of the library in a record, in order.

        Args:
            seqnum: of the record, for errors.
            envelope: of the record.
            about: decode and return only events with this id; None for all.

        Raises:
            UnknownEvent: the record has an event of the library whose kind this version does not know.
            ForeignRecord: an event is damaged.
        """
        decoders = self._decoders
        try:
            heads = _heads.decode(envelope.packed)
            for kind in dict.fromkeys([head.kind for head in heads]):
                if kind not in decoders and kind.startswith(self._prefix) and not kind.endswith("?"):
                    raise UnknownEvent(
                        f"record {seqnum} has an event {kind!r}, which this version does not know: upgrade it",
                        seqnum=seqnum,
                        found=kind,
                    )
            return [
                decoders[head.kind].decode(raw)
                for head, raw in zip(heads, envelope.events, strict=True)
                if (about is None or head.id == about) and head.kind in decoders
            ]
        except (msgspec.DecodeError, UnicodeDecodeError) as fault:
            raise ForeignRecord(
                f"an event of record {seqnum} is damaged: {fault}", seqnum=seqnum, damaged=True
            ) from fault
