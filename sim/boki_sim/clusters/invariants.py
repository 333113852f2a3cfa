"""What must hold at every step, watched from outside of the code under test (DESIGN §11).

Three kinds of looks:
- at every change in the metadata store (`metadata_changed`): ledgers and the view only move forward;
- after every few callbacks, whatever they did, and before every fault (`look`): writers and their LACs, fences, the content of
  entries that were just acknowledged, engines at one position. It looks at who ran since the last time, and at nobody else:
  what a process has in memory changes by its own callbacks only;
- at marked points (`compare_verdicts` and `check_cuts`, many times a virtual second; `check_carried` and `check_copies`, in the
  end): what takes longer.

What is found wrong is a `Violation`: the number of DESIGN's invariant and the facts. A run goes on after one, to its end.

It reads objects of the roles, never changes them, and decides nothing with their code but decoding stored values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, Protocol
from zlib import crc32

from boki_bookie.bookie import Bookie
from boki_common.bookkeeper import v2
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState, decode
from boki_common.errors import BokiError
from boki_common.ids import BookieId, Position
from boki_common.runtime.ports import Buffer
from boki_ledger.client import LedgerClient
from boki_ledger.rules.write_set import write_set
from boki_logbook.engine import Engine
from boki_logbook.index.places import ShardPlace
from boki_logbook.state.state import DecisionState
from boki_logbook.writers.writer_table import LAST, WRITER_KEY
from boki_logbook.writers.writers import WriterState
from boki_metalog.terms.term_record import TERMS_PATH, TermRecord, decode_record
from boki_metalog.terms.view import VIEW_PATH, View, decode_view
from boki_sim.clusters.carried_copies import carried_in

VIOLATIONS_KEPT = 50
FENCES_A_LOOK: Final = 3
"""Of so many ledgers each look sees the fence on a bookie."""
_PAYLOAD_START: Final = v2.ENTRY_HEADER_BYTES + 4
"""In an entry's body, behind its header and the checksum of all ledgers of ours."""


@dataclass(frozen=True, slots=True)
class Violation:
    """`rule`: what of DESIGN §11 is broken, or "liveness", "crash"."""

    at: float
    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.at:.6f} s  [{self.rule}] {self.what}"


@dataclass(slots=True)
class _Ledger:
    """What was seen of one ledger so far."""

    metadata: LedgerMetadata
    acked: int = -1
    """The highest LAC that its writer ever had."""
    writers: set[str] = field(default_factory=set)
    fenced: set[str] = field(default_factory=set)
    """Bookies (machines) that were seen with a durable fence."""
    fencing: dict[str, Bookie] = field(default_factory=dict)
    """Those whose fence is on its way to the disk."""
    contents: dict[int, int] = field(default_factory=dict)
    """Acknowledged entry → checksum of its payload."""
    targets: dict[BookieId, None] = field(default_factory=dict)
    """Bookies that a repair named after the ledger was closed: they had all entries of their slots then."""


class _Stand(NamedTuple):
    """Where an engine stood between two cuts, and what follows from that."""

    slots: object
    positions: dict[int, Position]
    facts: tuple[int, ...]


class Place(Protocol):
    """A machine and what runs there, as `cluster.Node` is. `incarnation_name` names its process, `ledgers` is its client."""

    @property
    def name(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def incarnation_name(self) -> str: ...

    @property
    def ledgers(self) -> LedgerClient | None: ...

    @property
    def role(self) -> object: ...


class Invariants:
    """See the module. `violations`: what was found, oldest first, at most `VIOLATIONS_KEPT`. `looks`: how often everything was
    looked at."""

    def __init__(self, now: Callable[[], float], found: Callable[[Violation], None]) -> None:
        self.violations: list[Violation] = []
        self.looks = 0
        self.ledgers: dict[int, _Ledger] = {}
        self.terms: dict[int, TermRecord] = {}
        self._now = now
        self._found = found
        self._machines: dict[str, str] = {}
        self._view: View | None = None
        self._acked: list[tuple[int, _Ledger, int]] = []
        """Ledgers whose writers acknowledged more, and what they had acknowledged before."""
        self._unclosed: dict[int, _Ledger] = {}
        """Those of `ledgers` that are not closed."""
        self._turns: dict[str, list[int]] = {}
        """For each bookie ledgers, of which each look sees some."""
        self._engines: dict[str, _Stand] = {}
        """Engine → where it stood at the last look, between two cuts, and what follows from that."""
        self._verdicts: dict[tuple[int, bytes, int], tuple[int, int]] = {}
        """(book, writer, number) → verdict and seqnum."""
        self._compared: dict[DecisionState, dict[bytes, int]] = {}
        """Of an engine's state, by writer (as its table has them): the number up to which its verdicts were compared."""

    def violated(self, rule: str, what: str) -> None:
        if len(self.violations) < VIOLATIONS_KEPT:
            violation = Violation(self._now(), rule, what)
            self.violations.append(violation)
            self._found(violation)

    # -- metadata: every change

    def metadata_changed(self, path: str, before: bytes | None, after: bytes | None) -> None:
        try:
            if path == VIEW_PATH:
                self._view_changed(None if before is None else decode_view(before), after)
            elif path.startswith(f"{TERMS_PATH}/"):
                self._term_sealed(path, before, after)
            elif path.startswith("/ledgers/") and path.rpartition("/")[2].startswith("L") and "LAYOUT" not in path:
                self._ledger_changed(path, before, after)
        except BokiError as error:
            self.violated("format", f"{path} holds what cannot be read: {error}")

    def _ledger_changed(self, path: str, before: bytes | None, after: bytes | None) -> None:
        ledger_id = int(path.removeprefix("/ledgers/").replace("/", "").replace("L", ""))
        if after is None:
            self.ledgers.pop(ledger_id, None)
            self._unclosed.pop(ledger_id, None)
            return
        new = decode(after)
        seen = self.ledgers.get(ledger_id)
        old = new if seen is None else seen.metadata
        if seen is None:
            seen = self.ledgers[ledger_id] = _Ledger(new)
        seen.metadata = new
        if new.state is LedgerState.CLOSED:
            self._unclosed.pop(ledger_id, None)
        else:
            self._unclosed[ledger_id] = seen
        if old.state is LedgerState.CLOSED and _end_of(new) != _end_of(old):
            self.violated(
                "2 closed", f"ledger {ledger_id} was closed at {old.last_entry} and is now {new.state} {new.last_entry}"
            )
        if old.state is LedgerState.CLOSED:
            known = {bookie for _, bookies in old.ensembles for bookie in bookies}
            named = {bookie: None for _, bookies in new.ensembles for bookie in bookies if bookie not in known}
            seen.targets.update(named)
        if old.state is LedgerState.IN_RECOVERY and new.state is LedgerState.OPEN:
            self.violated("2 state", f"ledger {ledger_id} went from recovery back to open")
        if new.state is LedgerState.CLOSED and new.last_entry < seen.acked:
            self.violated(
                "1 acked", f"ledger {ledger_id} closes at {new.last_entry}; its writer had acknowledged {seen.acked}"
            )

    def _view_changed(self, old: View | None, after: bytes | None) -> None:
        if after is None:
            self.violated("4 view", "the view was deleted")
            return
        new = decode_view(after)
        self._view = new
        if old is None:
            return
        if new.next_term < old.next_term:
            self.violated("4 view", f"next term went from {old.next_term} to {new.next_term}")
        for log, installed in new.logs.items():
            before = old.installed(log)
            if installed is None or before is None or installed == before:
                continue
            if installed.term <= before.term:
                self.violated("4 view", f"log {log} went from term {before.term} to {installed.term}")
            record = self.terms.get(before.term)
            ledger = self.ledgers.get(before.metalog_ledger)
            if record is None:
                self.violated("4 sealed", f"term {installed.term} is installed, term {before.term} has no record")
            elif ledger is None or ledger.metadata.state is not LedgerState.CLOSED:
                self.violated(
                    "4 sealed", f"term {installed.term} is installed, metalog {before.metalog_ledger} is not closed"
                )
            elif ledger.metadata.last_entry != record.closed_at:
                self.violated(
                    "3 sealed",
                    f"term {before.term} ends at {record.closed_at}, its metalog at {ledger.metadata.last_entry}",
                )

    def _term_sealed(self, path: str, before: bytes | None, after: bytes | None) -> None:
        term = int(path.rpartition("/")[2])
        if after is None:
            self.violated("3 sealed", f"the record of term {term} was deleted")
            return
        record = decode_record(after, term)
        if before is not None and not decode_record(before, term).same_term_as(record):
            self.violated("3 sealed", f"the record of term {term} changed")
        self.terms[term] = record

    # -- after every few callbacks

    def look(
        self, places: Iterable[Place], all_bookies: Callable[[], Mapping[str, Bookie]], *, thorough: bool = False
    ) -> None:
        """Looks at those that ran since the last look: nothing of the others has changed.

        Before a fault, a look is `thorough`: it sees every fence that may still matter.
        """
        self.looks += 1
        for place in places:
            role = place.role
            if place.ledgers is not None:
                self._look_at_writers(place.incarnation_name, place.ledgers)
                if type(role) is Engine:
                    self._look_at_engine(place.name, role)
            elif type(role) is Bookie:
                self._look_at_fences(place.host, role, thorough=thorough)
        if self._acked:
            self._look_at_contents(all_bookies())

    def _look_at_writers(self, name: str, client: LedgerClient) -> None:
        for writer in client._writers:
            ledger = self.ledgers.get(writer.ledger_id)
            if ledger is None:
                continue
            acked = writer.last_acked
            if name not in ledger.writers:
                ledger.writers.add(name)
            elif acked == ledger.acked and len(ledger.writers) == 1:
                continue  # as before; what the metadata say was looked at when they changed
            if len(ledger.writers) > 1:
                self.violated("2 writers", f"ledger {writer.ledger_id} was written by {sorted(ledger.writers)}")
            if acked < ledger.acked:
                self.violated("2 LAC", f"LAC of ledger {writer.ledger_id} went from {ledger.acked} to {acked}")
            elif acked > ledger.acked:
                self._acked.append((writer.ledger_id, ledger, ledger.acked))
                ledger.acked = acked
            closed = ledger.metadata
            if closed.state is LedgerState.CLOSED and acked > closed.last_entry:
                self.violated(
                    "1 acked",
                    f"ledger {writer.ledger_id} is closed at {closed.last_entry}, its writer acknowledged {acked}",
                )

    def _look_at_fences(self, name: str, bookie: Bookie, *, thorough: bool) -> None:
        """Of some ledgers, in turn, those that may be written still twice as often; or of all of the latter."""
        self._machines[bookie.bookie_id] = name
        turns = self._turns.get(name)
        if thorough or not turns:
            turns = self._turns[name] = [*self.ledgers, *self._unclosed]
        storage, ledgers = bookie.storage, self.ledgers
        for _ in range(min(len(self._unclosed) if thorough else FENCES_A_LOOK, len(turns))):
            ledger_id = turns.pop()
            seen = ledgers.get(ledger_id)
            if seen is None:
                continue
            if storage.of(ledger_id).is_fenced(ledger_id):
                if name not in seen.fenced and seen.fencing.get(name) is not bookie:
                    seen.fencing[name] = bookie
                    storage.when_durable(partial(_note_fence, seen.fenced, name))
            elif name in seen.fenced:
                seen.fenced.discard(name)
                self.violated("2 fence", f"{name} had fenced ledger {ledger_id} and has not any more")

    def _look_at_contents(self, bookies: Mapping[str, Bookie]) -> None:
        """An entry that was just acknowledged is one and the same on every bookie that has it at hand."""
        fresh, self._acked = self._acked, []
        for ledger_id, ledger, before in fresh:
            for entry in range(before + 1, ledger.acked + 1):
                for name, bookie in bookies.items():
                    body = bookie.storage.of(ledger_id).look_up(ledger_id, entry).body
                    if body is not None:
                        self._same_content(ledger_id, ledger, entry, name, body)

    def _same_content(self, ledger_id: int, ledger: _Ledger, entry: int, name: str, body: Buffer) -> None:
        self._is_content(ledger_id, ledger, entry, name, crc32(memoryview(body)[_PAYLOAD_START:]))

    def _is_content(self, ledger_id: int, ledger: _Ledger, entry: int, name: str, found: int) -> None:
        if ledger.contents.setdefault(entry, found) != found:
            self.violated(
                "3 content", f"entry {entry} of ledger {ledger_id} is acknowledged, and {name} has another one there"
            )

    def forget_disk(self, name: str) -> None:
        """A machine lost its disk: what it had fenced is gone, and nobody promised otherwise."""
        for ledger in self.ledgers.values():
            ledger.fenced.discard(name)
            ledger.fencing.pop(name, None)

    def _look_at_engine(self, name: str, engine: Engine) -> None:
        """Engines at one position of the log agree on everything that follows from it."""
        seen = self._engines.get(name)
        core = engine.core
        for log in core.logs.values():
            if log.indexer.pending:
                self._engines.pop(name, None)
                return  # in the middle of a cut
        if seen is not None and seen.positions == core.positions and seen.slots == core.slots:
            return  # what follows from a position is compared once
        state = core.state
        covered = tuple(seqnum for _, seqnum in sorted(core.frontier.covered.items()))
        live = sum(term.live for term in state.places.terms.values())
        facts = (state.records, live, len(state.verdicts.writers), *covered)
        at = _Stand(core.slots, dict(core.positions), facts)
        self._engines.pop(name, None)
        for other, stand in self._engines.items():
            if stand.positions == at.positions and stand.slots == at.slots and stand.facts != facts:
                self.violated(
                    "7 index",
                    f"at {sorted(at.positions.items())}, {other} has {stand.facts} (records, live, writers), {name} {facts}",
                )
        self._engines[name] = at

    def engine_gone(self, name: str) -> None:
        """It does not run any more: what it had seen is compared with nobody."""
        self._engines.pop(name, None)

    # -- marked points

    def compare_verdicts(self, engines: Mapping[str, Engine]) -> None:
        """(writer, number) has one verdict, for every engine and for ever."""
        for name, engine in engines.items():
            state = engine.core.state
            writers, compared = state.verdicts.writers, self._compared.setdefault(state, {})
            words = writers.words
            moved = [key for key, row in writers.rows.items() if words[row + LAST] > compared.get(key, 0)]
            moved += [key for key, known in writers.states.items() if known.last > compared.get(key, 0)]
            for key in moved:
                book, writer = WRITER_KEY.unpack(key)
                known = writers.look(book, writer)
                assert known is not None
                self._compare_verdicts_of(name, book, writer, known, compared.get(key, 0))
                compared[key] = known.last

    def _compare_verdicts_of(self, name: str, book: int, writer: bytes, known: WriterState, upto: int) -> None:
        """Of a writer's numbers above `upto`."""
        for run in known.kept:
            for number in range(max(run.first, upto + 1), run.first + run.count):
                seqnum = run.first_seqnum and run.first_seqnum + number - run.first
                earlier = self._verdicts.setdefault((book, writer, number), (run.verdict, seqnum))
                if earlier != (run.verdict, seqnum):
                    self.violated(
                        "5 verdict",
                        f"number {number} of writer {writer.hex()} in book {book} was {earlier}, "
                        f"and is {(run.verdict, seqnum)} for {name} (verdict, seqnum)",
                    )

    def compare_engines(self, engines: Mapping[str, Engine]) -> None:
        """All rows and all verdicts of engines at one position, which costs too much for every look."""
        seen: dict[tuple[Any, ...], tuple[str, Any, Any]] = {}
        for name, engine in engines.items():
            core = engine.core
            if core.pending:
                continue
            key = (core.slots, *sorted(core.positions.items()))
            known = core.state.verdicts
            rows, verdicts = core.state.index.streams(), (known.state(), dict(known.writers.past.by_slot))
            other = seen.setdefault(key, (name, rows, verdicts))
            if other[1] != rows:
                self.violated("7 index", f"at {key[1:]}, {other[0]} and {name} have different rows")
            if other[2] != verdicts:
                self.violated("7 verdicts", f"at {key[1:]}, {other[0]} and {name} have different verdicts")

    def check_cuts(self, engines: Mapping[str, Engine]) -> None:
        """No data ledger is closed below what engines know to be ordered of it, though the metalog carried some of that."""
        for ledger_id, stop in sorted(_ordered(engines).items()):
            seen = self.ledgers.get(ledger_id)
            if seen is None or seen.metadata.state is not LedgerState.CLOSED:
                continue
            if seen.metadata.last_entry + 1 < stop:
                self.violated(
                    "1 cut",
                    f"data ledger {ledger_id} is closed at {seen.metadata.last_entry}, and entries up to {stop - 1} are ordered",
                )

    def unclosed(self, engines: Mapping[str, Engine]) -> list[int]:
        """Data ledgers that are to be closed, as engines know: their shards have ended. Not those of terms that nobody needs any
        more: they are deleted, and an engine that begins behind such a term leaves them to that."""
        places = [
            place
            for engine in engines.values()
            for place in _shards(engine)
            if place.closed and engine.core.state.live(place.term)
        ]
        return sorted({place.ledger_id for place in places if place.ledger_id in self._unclosed})

    # -- the end

    def check_copies(self, bookies: Mapping[str, Bookie], lossy: str, engines: Mapping[str, Engine]) -> None:
        """Every acknowledged entry is on an ack quorum of the write set that the metadata names, less what may be lost; and so
        is every ordered one of a ledger that is closed, whoever wrote it there."""
        ordered = _ordered(engines)
        for ledger_id, seen in sorted(self.ledgers.items()):
            metadata = seen.metadata
            durable = seen.acked
            if metadata.state is LedgerState.CLOSED:
                durable = min(metadata.last_entry, max(seen.acked, ordered.get(ledger_id, 0) - 1))
            for entry in range(durable + 1):
                holders = [self._machines.get(bookie, bookie) for bookie in metadata.ensemble_of(entry)]
                having = [name for name in holders if self._holds(bookies.get(name), ledger_id, entry, name)]
                self._check_targets(ledger_id, entry, bookies, having, lossy)
                needed = metadata.ack_quorum - (1 if lossy in holders and lossy not in having else 0)
                if len(having) < needed:
                    self.violated(
                        "1 copies",
                        f"entry {entry} of ledger {ledger_id} was acknowledged or ordered; of {holders} only {having} have it",
                    )
                    break

    def _check_targets(
        self, ledger_id: int, entry: int, bookies: Mapping[str, Bookie], having: Sequence[str], lossy: str
    ) -> None:
        """A bookie that a repair named has what its slots have, for ever."""
        seen = self.ledgers[ledger_id]
        metadata = seen.metadata
        members = metadata.ensemble_of(entry)
        for slot in write_set(entry, metadata.ensemble_size, metadata.write_quorum):
            name = self._machines.get(members[slot], members[slot])
            if members[slot] in seen.targets and name in bookies and name != lossy and name not in having:
                self.violated(
                    "1 repaired", f"entry {entry} of ledger {ledger_id} is not on {name}, which a repair named"
                )

    def check_carried(self, bookies: Mapping[str, Bookie]) -> None:
        """What a metalog carries is what its data ledger has there. `check_copies` looks at all copies after that."""
        ends = {one.metalog_ledger: one.last_entry for one in self.terms.values() if one.given_up is not None}
        for ledger_id, seen in sorted(self.ledgers.items()):
            if dict(seen.metadata.custom).get("boki.role") != b"metalog":
                continue
            end = seen.metadata.last_entry if seen.metadata.state is LedgerState.CLOSED else seen.acked
            end = ends.get(ledger_id, end)  # nobody reads what was given up
            for (data, entry), found in carried_in(self._payloads(bookies, ledger_id, end)).items():
                ledger = self.ledgers.get(data)
                if ledger is not None:
                    self._is_content(data, ledger, entry, f"its metalog {ledger_id}", found)

    def _payloads(self, bookies: Mapping[str, Bookie], ledger_id: int, end: int) -> Iterator[Buffer]:
        """Those of a ledger's entries up to `end`, or to the first that no bookie has whole."""
        for entry in range(end + 1):
            bodies = (_body_of(bookie, ledger_id, entry)[0] for bookie in bookies.values())
            body = next((body for body in bodies if body is not None), None)
            if body is None:
                return
            yield memoryview(body)[_PAYLOAD_START:]

    def _holds(self, bookie: Bookie | None, ledger_id: int, entry: int, name: str) -> bool:
        if bookie is None:
            return False
        body, held = _body_of(bookie, ledger_id, entry)
        if body is not None:
            self._same_content(ledger_id, self.ledgers[ledger_id], entry, name, body)
        return held


def _end_of(metadata: LedgerMetadata) -> tuple[object, ...]:
    """What stays for ever once a ledger is closed: a repair gives slots of its fragments to other bookies, and nothing else."""
    shape = metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum
    return metadata.state, metadata.last_entry, metadata.length, shape, [first for first, _ in metadata.ensembles]


def _body_of(bookie: Bookie, ledger_id: int, entry: int) -> tuple[Buffer | None, bool]:
    """An entry on a bookie, as far as it is at hand; and whether it is there."""
    found = bookie.storage.of(ledger_id).look_up(ledger_id, entry)
    body = found.body
    if body is None and found.place is not None:
        body = bookie.storage.of(ledger_id).at_hand(ledger_id, found.place)
    return body, body is not None or found.place is not None


def _shards(engine: Engine) -> Iterator[ShardPlace]:
    """All that an engine knows, of terms that are still there."""
    for places in engine.core.state.places.terms.values():
        yield from places.shards.values()


def _ordered(engines: Mapping[str, Engine]) -> dict[int, int]:
    """Data ledger → entries that are ordered of it, as far as an engine knows."""
    ordered: dict[int, int] = {}
    for engine in engines.values():
        for place in _shards(engine):
            ordered[place.ledger_id] = max(ordered.get(place.ledger_id, 0), place.entries_end)
    return ordered


def _note_fence(fenced: set[str], name: str, error: BokiError | None) -> None:
    if error is None:
        fenced.add(name)
