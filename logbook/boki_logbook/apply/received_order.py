"""What one log says, from its coming until it is applied: metalog entries, and beginnings and ends of terms. Pure.

    begun       entries of a term follow
    ordered     the next metalog entry: its shards open, grow and close at once; what changes the state waits for its place
    ended       all entries of a term have come
    queue       all of this, in order: whoever applies takes it from the left

Rules:
- An entry that cannot follow those before it is refused before anything of it is noted.
- The shards of a term (`ShardPlace`) are changed here alone; `places` counts what of them is applied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from boki_common.ids import Position, make_position
from boki_logbook.index.places import ShardPlace, TermPlaces
from boki_logbook.state.frontier import Frontier
from boki_logbook.state.snapshot_format import LogPoint
from boki_metalog.entries.metalog_entry import Close, MetalogEntry, Open, ShardEnd
from boki_metalog.entries.progress import Order, ProgressVector
from boki_metalog.terms.term_info import TermInfo


class ReceivedTerm:
    """A term that was received; `places` once it is its turn, with the shards that are known by then and after."""

    __slots__ = ("info", "places", "shards")

    def __init__(self, info: TermInfo) -> None:
        self.info = info
        self.shards: dict[int, ShardPlace] = {}
        self.places: TermPlaces | None = None

    def apply_to(self, places: TermPlaces) -> None:
        """Its entries are applied from here on."""
        self.places = places
        places.shards = self.shards

    def go_on_with(self, places: TermPlaces) -> None:
        """Some of it is applied already."""
        self.places = places
        self.shards = places.shards


class Cut:
    """One metalog entry that is not applied yet. `opened`: the shards that it opens. `commands`: those that change the state,
    after its records."""

    __slots__ = (
        "commands",
        "end_pos",
        "entry",
        "next_shard",
        "open_shards",
        "opened",
        "ranges",
        "records",
        "term",
        "time_ms",
    )

    def __init__(self, term: ReceivedTerm, entry: int, metalog_entry: MetalogEntry, vector: ProgressVector) -> None:
        """Becomes the vector's next entry. Raises CorruptData when it cannot follow."""
        self.ranges = vector.apply(metalog_entry)
        self.open_shards = vector.ends
        self.next_shard = vector.next_shard
        self.term = term
        self.entry = entry
        self.end_pos = metalog_entry.end_pos
        self.records = metalog_entry.end_pos - metalog_entry.start_pos
        self.time_ms = metalog_entry.time_ms
        self.opened: Sequence[ShardPlace] = ()
        self.commands: Sequence[Order] = ()


class Begin(NamedTuple):
    """Entries of a term follow."""

    term: ReceivedTerm


class End(NamedTuple):
    """The entries of a term are complete; `term` 0: those of all terms, the log has none now."""

    term: int


Received: TypeAlias = Cut | Begin | End


class ReceivedOrder:
    """See the module. Invariant: `frontier.received[log]` is the position behind the last entry of the queue."""

    def __init__(self, log: int, frontier: Frontier) -> None:
        self.log = log
        self.queue: deque[Received] = deque()
        self._frontier = frontier
        self._vector = ProgressVector()
        self._newest: ReceivedTerm | None = None
        self._terms: dict[int, ReceivedTerm] = {}
        """Terms received and not applied to their ends."""

    @property
    def shards(self) -> Mapping[int, ShardPlace]:
        """The shards of the term that is being received."""
        return {} if self._newest is None else self._newest.shards

    def shard(self, term: int, number: int) -> ShardPlace | None:
        """One of a term that is not applied to its end."""
        found = self._terms.get(term)
        return None if found is None else found.shards.get(number)

    def begun(self, info: TermInfo) -> None:
        """Entries of a new term follow."""
        self._newest = self._terms[info.term] = ReceivedTerm(info)
        self._vector = ProgressVector()
        self._frontier.came(self.log, Position(info.term, 0))
        self.queue.append(Begin(self._newest))

    def went_on(self, info: TermInfo, places: TermPlaces, point: LogPoint) -> None:
        """The term is the one that the snapshot was taken in, at `point`: its next entries follow."""
        self._newest = self._terms[info.term] = ReceivedTerm(info)
        self._newest.go_on_with(places)
        ends = (ShardEnd(*end) for end in point.shards)
        self._vector = ProgressVector(point.end_pos, point.time_ms, ends, point.next_shard)

    def ordered(self, term: int, entry: int, metalog_entry: MetalogEntry) -> Cut:
        """Takes the next metalog entry. Raises CorruptData when it cannot follow."""
        newest = self._newest
        assert newest is not None and newest.info.term == term, f"metalog entry of term {term} out of order"
        assert self._frontier.received[self.log] == (term, entry), f"metalog entry {entry} of term {term} out of order"
        cut = Cut(newest, entry, metalog_entry, self._vector)
        shards = newest.shards
        if metalog_entry.commands:
            self._take_commands(cut, metalog_entry, shards)
        for number, records_end, entries_end in metalog_entry.shards:
            shards[number].cut(records_end, entries_end)
        self.queue.append(cut)
        self._frontier.came(self.log, make_position((term, entry + 1)))
        return cut

    def _take_commands(self, cut: Cut, metalog_entry: MetalogEntry, shards: dict[int, ShardPlace]) -> None:
        term = cut.term.info.term
        opened: list[ShardPlace] = []
        later: list[Order] = []
        for command in metalog_entry.commands:
            if isinstance(command, Open):
                place = ShardPlace(term, command.shard, command.ledger_id, command.incarnation)
                shards[command.shard] = place
                opened.append(place)
            elif isinstance(command, Close):
                shards[command.shard].close()
            else:
                later.append(command)
        cut.opened, cut.commands = opened, later

    def close_shards(self) -> list[int]:
        """The term that is being received is over: closes its open shards, and returns their numbers."""
        found = [number for number, shard in self.shards.items() if not shard.closed]
        for number in found:
            self.shards[number].close()
        return found

    def ended(self, term: int) -> None:
        """All entries of a term have come; 0: of all terms, and the log has none now."""
        self.queue.append(End(term))

    def applied(self, term: int) -> list[ShardPlace]:
        """All of a term is applied; returns its shards."""
        return list(self._terms.pop(term).shards.values())
