"""Staging of a transaction: its reads and writes, and the record that they become. Pure.

- A transaction reads at its snapshot and sees its own writes on top.
- Writes keep their order and form one record; consecutive operations on one object form one event.
- Snapshot isolation expects that no written object moved since the snapshot; serializability expects the same of every object read.
- Operations that are sent without a condition join the record and expect nothing: they apply to whatever the object then is.
- A scan of a collection reads its 16 directory streams. Creating a name joins one of them without an expectation, so that two
  transactions that create different names do not conflict.
- A deletion joins the stream of the object's checkpoints too: a checkpoint that is being made at that moment then fails, and cannot bring
  the object back.

A transaction may have parts in several processes (`Context`). A part reads at the snapshot of its transaction, with all earlier writes of
the transaction on top. Its reads and writes return as data. Nothing of it is in the store before the transaction commits, in one record
that expects all streams that any part read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.records.events import Event
from bokilib.records.isolation import Isolation, expectations
from bokistore.model import directory_rules
from bokistore.model.events import AnyEvent, Commit, Deleted, Entry, Expires, Ops
from bokistore.model.fold import View, after_event
from bokistore.model.operations import AnyOperation

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


class Staging:
    """Reads and writes that a transaction has made so far.

    Attributes:
        snapshot: the place where it reads; 0 while that is open.
        isolation: which of its reads it expects unchanged.
    """

    def __init__(self, snapshot: int, isolation: Isolation) -> None:
        self.snapshot = snapshot
        self.isolation: Final = isolation
        self.unseen: Final[dict[str, int]] = {}
        """Of objects that are written and were not read, what is expected of them instead of the snapshot."""
        self.elsewhere: Final[set[str]] = set()
        """Objects that were written in parts of it that ran elsewhere: perhaps they were read there."""
        self._read: dict[str, None] = {}
        self._events: list[AnyEvent] = []
        self._placed: tuple[AnyEvent, ...] = ()
        self._written: dict[str, str] = {}
        """The streams of the objects that it changes, by name."""
        self._extra: list[Contribution] = []

    @property
    def written(self) -> tuple[str, ...]:
        """Names of the objects that it changes."""
        return tuple(self._written)

    @property
    def events(self) -> tuple[AnyEvent, ...]:
        """Events to append, in order. Commits contain the snapshot once it is known."""
        if not self.snapshot:
            return tuple(self._events)
        if len(self._placed) < len(self._events):  # from then on nothing is added
            self._placed = tuple(
                Commit(event.name, event.operations, self.snapshot) if isinstance(event, Commit) else event
                for event in self._events
            )
        return self._placed

    @property
    def empty(self) -> bool:
        """True while there is nothing to append."""
        return not self._events and not any(one.events for one in self._extra)

    def reads(self, name: str) -> None:
        """Note that an object is read."""
        self._read[tags.store_object(name)] = None

    def scans(self, collection: str) -> None:
        """Note that all names of a collection are read."""
        for stream in directory_rules.buckets(collection):
            self._read[stream] = None

    def operates(self, name: str, operation: AnyOperation) -> None:
        """Add an operation on an object."""
        last = self._events[-1] if self._events else None
        if isinstance(last, Commit) and last.name == name:
            self._events[-1] = Commit(name, (*last.operations, operation), 0)
        else:
            self._events.append(Commit(name, (operation,), 0))
        self._written[name] = tags.store_object(name)

    def sends(self, name: str, operations: Iterable[AnyOperation]) -> None:
        """Add operations without a condition: other changes of the object cause no conflict."""
        self._events.append(Ops(name, tuple(operations)))

    def deletes(self, name: str) -> None:
        """Add a deletion."""
        self._events.append(Deleted(name))
        self._written[name] = tags.store_object(name)

    def expires(self, name: str, at_ms: int | None) -> None:
        """Add the time after which an object may be deleted."""
        self._events.append(Expires(name, at_ms))
        self._written[name] = tags.store_object(name)
        if at_ms is not None:
            self.enters(directory_rules.TIMES, f"{at_ms}{directory_rules.SEPARATOR}{name}", there=True)

    def enters(self, collection: str, id: str, *, there: bool) -> None:
        """Add a name to a collection, or remove it."""
        self._events.append(Entry(collection, id, there))

    def takes(self, read: Iterable[str], events: Iterable[Staged]) -> None:
        """Add the reads and writes of a part of this transaction that ran in another process."""
        self._read.update(dict.fromkeys(read))
        for event in events:
            self._events.append(event)
            if isinstance(event, Commit | Deleted | Expires):
                self._written[event.name] = tags.store_object(event.name)
                self.elsewhere.add(event.name)

    def adds(self, part: Contribution) -> None:
        """Add another library's part of the record."""
        self._extra.append(part)

    @property
    def extra(self) -> tuple[Contribution, ...]:
        """Parts of other libraries."""
        return tuple(self._extra)

    @property
    def fences(self) -> Mapping[str, int | None]:
        """Expectations of other libraries. If one of these streams moved, the transaction ends instead of running again."""
        return {tag: seqnum for part in self._extra for tag, seqnum in part.expect.items()}

    @property
    def read_streams(self) -> tuple[str, ...]:
        """Streams that were read."""
        return tuple(self._read)

    @property
    def written_streams(self) -> tuple[str, ...]:
        """Streams of objects that are written."""
        return tuple(self._written.values())

    @property
    def joined_streams(self) -> tuple[str, ...]:
        """All streams of this library that the record joins."""
        joined = dict.fromkeys(self.written_streams)
        for event in self._events:
            if isinstance(event, Ops):
                joined[tags.store_object(event.name)] = None
            elif isinstance(event, Deleted):
                joined[tags.store_checkpoint(event.name)] = None
            elif isinstance(event, Entry):
                joined[directory_rules.stream_of(event.collection, event.id)] = None
        return tuple(joined)

    def with_own_writes(self, view: View) -> View:
        """Return an object as the transaction sees it, from its state at the snapshot."""
        return with_writes(view, self._events)

    def contribution(self) -> Contribution:
        """Return the record, without the parts of other libraries."""
        expect = expectations(self.isolation, self.snapshot, read=self.read_streams, written=self.written_streams)
        expect |= {tags.store_object(name): upto for name, upto in self.unseen.items()}
        events: tuple[Event, ...] = self.events
        return Contribution(self.joined_streams, expect, events)


class Overlay:
    """Writes of the transactions before this one in a record, in order and by object."""

    def __init__(self) -> None:
        self.events: list[AnyEvent] = []
        self._by_name: dict[str, tuple[AnyEvent, ...]] = {}
        self._after: dict[str, tuple[View, int, View]] = {}
        """By object: a view, how many of the writes were applied to it, and the view after them. Shared with copies."""

    def add(self, events: Iterable[AnyEvent]) -> None:
        """Add the writes of one more transaction."""
        for event in events:
            self.events.append(event)
            if not isinstance(event, Entry):
                self._by_name[event.name] = (*self._by_name.get(event.name, ()), event)

    def copy(self) -> Overlay:
        """Return these writes, without those that are added here later. Only one of the two may be added to."""
        made = Overlay()
        made.events, made._by_name, made._after = list(self.events), dict(self._by_name), self._after
        return made

    def on(self, view: View) -> View:
        """Return an object after these writes; its place stays the same."""
        events = self._by_name.get(view.name)
        if events is None:
            return view
        base, count, after = self._after.get(view.name, (view, 0, view))
        if base is not view or count > len(events):
            count, after = 0, view
        after = with_writes(after, events[count:])
        self._after[view.name] = view, len(events), after
        return after


def with_writes(view: View, events: Iterable[AnyEvent]) -> View:
    """Return a view after events that are not in the log yet; its place stays the same."""
    for event in events:
        view = after_event(view, event)
    return view
