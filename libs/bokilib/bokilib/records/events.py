"""Records of libraries: events of any of them, all or nothing. Pure.

    record   msgpack array  [version, by, seen, events]
    version  1: events is an array of events. 2: it is [hook, bytes]: an array of events, as a payload hook left it
    by       incarnation of the writer: random, one for each start of a program
    seen     seqnum up to which the writer had seen the stream that it wrote for; 0 where that means nothing
    event    msgpack array  [kind, id, …]: kind is "library.name", id the name of what it is about

- A record is atomic: its events happen at one place of the order, or (a void append) not at all.
- A reader takes the events of its own library and passes those of others, which share the record.
- The id is in the event and is compared when read: two ids may share a tag (see `tags`).
- Unknown kinds of one's own library are refused, for to pass them would compute a wrong state; one that ends with "?" says
  nothing that a state depends on, and is passed. Unknown versions are refused. Fields added at the end of an event are passed.
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
    """Base of all events: subclasses have `tag="library.name"` and the fields of the event, the id first."""


class _Head(msgspec.Struct, array_like=True):
    kind: str
    id: Any = None


class _Frame(msgspec.Struct, array_like=True):
    version: int
    by: str
    seen: int
    events: msgspec.Raw


class Hooked(msgspec.Struct, array_like=True, frozen=True):
    """Events as a payload hook left them."""

    hook: str
    data: bytes


class Envelope(msgspec.Struct, frozen=True):
    """A record, opened as far as its writer.

    Attributes:
        events: one msgpack array each, of whatever library; empty while `hooked` has them.
    """

    by: str
    seen: int
    events: tuple[msgspec.Raw, ...]
    hooked: Hooked | None = None
    packed: msgspec.Raw = msgspec.Raw(b"\x90")
    """The events as one msgpack array, which is quicker to look through."""


_encoder: Final = msgspec.msgpack.Encoder()
_frames: Final = msgspec.msgpack.Decoder(_Frame)
_heads: Final = msgspec.msgpack.Decoder(tuple[_Head, ...])
_lists: Final = msgspec.msgpack.Decoder(tuple[msgspec.Raw, ...])
_hooked: Final = msgspec.msgpack.Decoder(Hooked)


def encode(by: str, seen: int, events: Sequence[Event]) -> bytes:
    """The data of a record."""
    return _encoder.encode((VERSION, by, seen, events))


def encode_events(events: Sequence[Event]) -> bytes:
    """What a payload hook is given."""
    return _encoder.encode(events)


def encode_hooked(by: str, seen: int, hook: str, data: bytes) -> bytes:
    """The data of a record whose events a hook has."""
    return _encoder.encode((VERSION_HOOKED, by, seen, (hook, data)))


def open_record(seqnum: int, data: bytes) -> Envelope:
    """Reads the data of a record.

    Raises:
        ForeignRecord: no library wrote it. UnknownEvent: of a later version.
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
    """The envelope with the events that a hook gave back. Raises ForeignRecord."""
    try:
        return Envelope(envelope.by, envelope.seen, _lists.decode(opened), packed=msgspec.Raw(opened))
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise ForeignRecord(
            f"what the payload hook gave back of record {seqnum} is no list of events: {fault}; is it the hook that wrote it?",
            seqnum=seqnum,
        ) from fault


def libraries_of(seqnum: int, envelope: Envelope) -> list[str]:
    """Whose events a record has, each library once. Raises ForeignRecord."""
    try:
        kinds = [head.kind for head in _heads.decode(envelope.packed)]
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise ForeignRecord(f"an event of record {seqnum} is damaged: {fault}", seqnum=seqnum) from fault
    return list(dict.fromkeys(kind.partition(".")[0] for kind in kinds))


class Picker(Generic[E]):
    """Picks the events of one library from records.

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
        """The events of the library, in order.

        Args:
            about: only those with this id: of a record of many, the others are not decoded.

        Raises:
            UnknownEvent: a kind of the library that this version does not know. ForeignRecord: one that is damaged.
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
            raise ForeignRecord(f"an event of record {seqnum} is damaged: {fault}", seqnum=seqnum) from fault
