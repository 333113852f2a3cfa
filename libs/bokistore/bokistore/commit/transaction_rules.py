"""What a transaction read and wants written, and what its record is. Pure.

- Reads are at the snapshot, with its own writes on top: a transaction sees what it did.
- Writes are kept in order and go as one record; operations on one object that follow one another are one event.
- Snapshot isolation expects that what it wrote did not move since the snapshot, serializability that nothing it read did either.
- Operations that are sent join the record and expect nothing: they change what is there then, as everywhere in the log.
- A scan of a collection reads its 16 directory streams. Creating a name joins one of them, and expects nothing of it: two that
  create different names do not meet.
- A deletion joins the object's checkpoints too: a checkpointer that is under way is too late then, and raises nobody from the dead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.records.events import Event
from bokilib.records.isolation import Isolation, expectations
from bokistore.commit.shared_parts import Staged
from bokistore.model import directory_rules
from bokistore.model.events import AnyEvent, Commit, Deleted, Entry, Expires, Ops
from bokistore.model.fold import View, after_event
from bokistore.model.operations import AnyOperation


class Staging:
    """See the module.

    Attributes:
        snapshot: where it reads, 0 as long as that is open. isolation: what it expects.
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
        self._written: dict[str, None] = {}
        self._extra: list[Contribution] = []

    @property
    def written(self) -> tuple[str, ...]:
        """Names of objects that it changes."""
        return tuple(self._written)

    @property
    def events(self) -> tuple[AnyEvent, ...]:
        """What it wants written so far, in order. Those of a transaction contain where it read."""
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
        """Whether there is nothing to append."""
        return not self._events and not any(one.events for one in self._extra)

    def reads(self, name: str) -> None:
        """An object is read."""
        self._read[tags.store_object(name)] = None

    def scans(self, collection: str) -> None:
        """All names of a collection are read."""
        for stream in directory_rules.buckets(collection):
            self._read[stream] = None

    def operates(self, name: str, operation: AnyOperation) -> None:
        """An object is changed."""
        last = self._events[-1] if self._events else None
        if isinstance(last, Commit) and last.name == name:
            self._events[-1] = Commit(name, (*last.operations, operation), 0)
        else:
            self._events.append(Commit(name, (operation,), 0))
        self._written[name] = None

    def sends(self, name: str, operations: Iterable[AnyOperation]) -> None:
        """An object is changed, whatever it is by then: the transaction does not lose because of it."""
        self._events.append(Ops(name, tuple(operations)))

    def deletes(self, name: str) -> None:
        """An object ends."""
        self._events.append(Deleted(name))
        self._written[name] = None

    def expires(self, name: str, at_ms: int | None) -> None:
        """An object gets a time after which it may be deleted."""
        self._events.append(Expires(name, at_ms))
        self._written[name] = None
        if at_ms is not None:
            self.enters(directory_rules.TIMES, f"{at_ms}{directory_rules.SEPARATOR}{name}", there=True)

    def enters(self, collection: str, id: str, *, there: bool) -> None:
        """A name begins or ends to be in a collection."""
        self._events.append(Entry(collection, id, there))

    def takes(self, read: Iterable[str], events: Iterable[Staged]) -> None:
        """What was read and written in a part of this transaction that ran elsewhere."""
        self._read.update(dict.fromkeys(read))
        for event in events:
            self._events.append(event)
            if isinstance(event, Commit | Deleted | Expires):
                self._written[event.name] = None
                self.elsewhere.add(event.name)

    def adds(self, part: Contribution) -> None:
        """Another library's part of the record."""
        self._extra.append(part)

    @property
    def extra(self) -> tuple[Contribution, ...]:
        """Parts of other libraries."""
        return tuple(self._extra)

    @property
    def fences(self) -> Mapping[str, int | None]:
        """What other libraries expect: if that moved, the transaction is not run again but over."""
        return {tag: seqnum for part in self._extra for tag, seqnum in part.expect.items()}

    @property
    def read_streams(self) -> tuple[str, ...]:
        """Streams that were read."""
        return tuple(self._read)

    @property
    def written_streams(self) -> tuple[str, ...]:
        """Streams of objects that are written."""
        return tuple(tags.store_object(name) for name in self._written)

    @property
    def joined_streams(self) -> tuple[str, ...]:
        """All streams that the record joins, of this library."""
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
        """What the transaction sees of an object of which `view` is the state at its snapshot."""
        return with_writes(view, self._events)

    def contribution(self) -> Contribution:
        """The record, but for other libraries' parts."""
        expect = expectations(self.isolation, self.snapshot, read=self.read_streams, written=self.written_streams)
        expect |= {tags.store_object(name): upto for name, upto in self.unseen.items()}
        events: tuple[Event, ...] = self.events
        return Contribution(self.joined_streams, expect, events)


class Overlay:
    """Writes of transactions that are to commit before another one, in the same record: in order, and by object."""

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
        """Return an object after them: as of the same place."""
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
    """A view after events that are not in the log, or not yet: as of the same place."""
    for event in events:
        view = after_event(view, event)
    return view
