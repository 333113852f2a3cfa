"""A model of a partition's checkpoints and snapshots, over the library's own rules (`partition_state`, `machine_state`): owners that
claim from one another at any time, appends of dead ones on their way, trims, and a carrier that appends the newest snapshot again. An owner
may drop its machine from memory, and read it again, while the newest snapshot that it wrote or read has all of it.

One machine counts its inputs. An owner that loads has to find the count, and exactly the inputs that no commit took. Claim and load are two
steps, with trims between them: an owner that lost the partition meanwhile may find less, and knows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import msgspec
import pytest

from bokirsm.machine.values import Codec, encode
from bokirsm.model.events import AnyEvent, Checkpoint, Commit, Inputs, Message, MessageId, PartRef, Snapshot
from bokirsm.model.machine_state import MachineState, decode_state, encode_state
from bokirsm.model.partition_state import PartitionState, machine_of
from libs.tests.models.search import search

MACHINE = "g/0/m"
COUNT = Codec(int)


@dataclass(frozen=True)
class Rules:
    """Each broken variant turns one off."""

    checkpoint_fenced: bool = True
    snapshot_fenced: bool = True
    copy_expects: bool = True
    """A carrier's copy expects that the machine has no newer snapshot."""
    copy_before_trim: bool = True
    trim_after_ack: bool = True
    snapshots_first: bool = True
    """A checkpoint comes after the snapshots of the machines that were touched."""
    carries_pending: bool = True
    newest_if_trimmed: bool = True
    """A load whose snapshot was trimmed reads the newest of all: a copy, or another owner's."""
    refers_alone: bool = True
    """A snapshot that refers to a part of an older one expects that the machine has no snapshot that its owner does not know."""
    drops_clean: bool = True
    """A machine is dropped from memory while its newest snapshot has all of it."""
    by_number: bool = True
    """A load applies the commits that its snapshot does not contain."""


@dataclass(frozen=True)
class Owner:
    """A process with a claim; 0 if it is dead. `loaded` is the state that it has read; None before."""

    claim: int = 0
    read: int = 0
    state: bytes | None = None
    pending: tuple[int, ...] = ()
    snapped: int = -1
    newest: int = 0
    """The place of the newest snapshot that it knows, and of the one that has the machine's part."""
    part: int = 0
    flying: bytes | None = None
    trims: tuple[str, int] | None = None


@cache
def decoded(data: bytes) -> AnyEvent:
    found: AnyEvent = msgspec.msgpack.decode(data, type=Commit | Inputs | Snapshot | Checkpoint)
    return found


def encoded(event: AnyEvent) -> bytes:
    return msgspec.msgpack.encode(event)


@cache
def machine(data: bytes) -> MachineState:
    return decode_state(data)


@dataclass(frozen=True)
class Partition:
    """The log, by places from 1: an event, or b"" for a claim."""

    rules: Rules
    inputs: int
    claims: int
    crashes: int = 1
    carries: int = 0
    log: tuple[bytes, ...] = ()
    p_mark: int = 1
    m_mark: int = 1
    owners: tuple[Owner, ...] = (Owner(), Owner())
    dead: tuple[tuple[bytes, Owner], ...] = ()
    """Appends of dead owners, with their owners, whose claims they expect."""
    copies: bytes | None = None
    """The snapshot that a carrier read, and appends again."""
    copied_at: int = 0
    broken: str = ""
    refer: bool = False
    """Whether snapshots may refer to parts of older ones."""
    snapshots: int = 2
    checkpoints: int = 1
    """The most of each in the log."""

    def owner_claim(self) -> int:
        return max((place for place, data in enumerate(self.log, 1) if not data), default=0)

    def places(self, kind: type[AnyEvent], last: int | None = None) -> list[int]:
        upto = len(self.log) if last is None else last
        return [place for place, data in enumerate(self.log[:upto], 1) if data and isinstance(decoded(data), kind)]

    def truth(self, last: int) -> tuple[int, tuple[int, ...]]:
        """Return the number of inputs that were taken up to a place, and those that were not."""
        took = [one.seqnum for place in self.places(Commit, last) for one in self.commit(place).took]
        return len(took), tuple(place for place in self.places(Inputs, last) if place not in took)

    def commit(self, place: int) -> Commit:
        found = decoded(self.log[place - 1])
        assert isinstance(found, Commit)
        return found

    def fault(self) -> str | None:
        took = [one for place in self.places(Commit) for one in self.commit(place).took]
        if len(took) != len(set(took)):
            return "taken twice"
        return self.broken or None

    # -- loading, by the rules of the library

    def load(self, claim: int) -> tuple[MachineState | None, tuple[int, ...], int] | None:
        """Return the machine, the pending inputs and the number of the snapshot; None if records are missing."""
        covers = 0
        state = PartitionState("g", 0)
        for place in self.places(Checkpoint, claim)[-1:]:
            one = self.event(place)
            assert isinstance(one, Checkpoint)
            covers = one.covers
            state = PartitionState.restored("g", 0, covers, one.data)
        if self.p_mark > covers + 1:
            return None
        for place in range(covers + 1, claim):
            if self.log[place - 1] and isinstance(self.event(place), (Commit, Inputs)):
                state.apply(place, 0, 0, [self.event(place)])
        at = self._snapshot_at(claim)
        if at and any(ref.seqnum < self.m_mark for ref in self.refs(at)):
            return None
        snapshot = self._snapshot(at) if at else None
        snapped = snapshot.k if snapshot is not None else -1  # commits are applied to this state
        commits = state.commits.get(MACHINE, [])
        if not self.rules.by_number:
            commits = [
                msgspec.structs.replace(one, k=(snapshot.k if snapshot else 0) + n) for n, one in enumerate(commits, 1)
            ]
        try:
            whole = machine_of(snapshot, commits)
        except LookupError:
            return None
        return whole, tuple(id.seqnum for id in state.pending), snapped

    def _snapshot_at(self, claim: int) -> int:
        places = self.places(Snapshot, claim)
        if places and places[-1] < self.m_mark:
            places = self.places(Snapshot) if self.rules.newest_if_trimmed else []
        return places[-1] if places and places[-1] >= self.m_mark else 0

    def _snapshot(self, place: int) -> MachineState | None:
        one = self.event(place)
        assert isinstance(one, Snapshot)
        return decode_state(one.data)

    def refs(self, place: int) -> tuple[PartRef, ...]:
        """Return the parts that a snapshot refers to. The model lets it have their bytes as well."""
        one = self.event(place)
        assert isinstance(one, Snapshot)
        return one.refs

    def event(self, place: int) -> AnyEvent:
        return decoded(self.log[place - 1])

    # -- moves

    def moves(self) -> Iterator[tuple[str, Partition]]:
        if self.broken:
            return
        if self.inputs:
            data = encoded(Inputs("g", (Message(MACHINE, "Go"),)))
            yield "an input", replace(self, inputs=self.inputs - 1, log=(*self.log, data))
        for index, (data, owner) in enumerate(self.dead):
            rest = replace(self, dead=(*self.dead[:index], *self.dead[index + 1 :]))
            yield "an append of a dead owner arrives", rest.landed(data, owner) or rest
        for number, owner in enumerate(self.owners):
            yield from self._owner_moves(number, owner)
        yield from self._carrier_moves()

    def put(self, number: int, owner: Owner) -> Partition:
        return replace(self, owners=(*self.owners[:number], owner, *self.owners[number + 1 :]))

    def landed(self, data: bytes, owner: Owner) -> Partition | None:
        event, claim = decoded(data), owner.claim
        if isinstance(event, Snapshot) and event.refs and self.rules.refers_alone:
            places = self.places(Snapshot)
            if places and places[-1] > owner.newest:
                return None
        free = (isinstance(event, Checkpoint) and not self.rules.checkpoint_fenced) or (
            isinstance(event, Snapshot) and not self.rules.snapshot_fenced
        )
        return replace(self, log=(*self.log, data)) if free or claim == self.owner_claim() else None

    def _owner_moves(self, number: int, owner: Owner) -> Iterator[tuple[str, Partition]]:
        who = f"owner {number}"
        if not owner.claim:
            if self.claims:
                after = replace(self, claims=self.claims - 1, log=(*self.log, b""))
                yield f"{who} claims", after.put(number, Owner(len(self.log) + 1))
            return
        if not owner.read:
            yield f"{who} loads", self._loaded(number, owner)
            return
        if owner.flying is not None:
            landed = self.landed(owner.flying, owner)
            ended = self.put(number, Owner()) if landed is None else landed.put(number, acked(owner, len(self.log) + 1))
            yield f"the append of {who} lands", ended
            if not self.rules.trim_after_ack and isinstance(decoded(owner.flying), Checkpoint):
                yield f"{who} trims", self.trimmed(acked(owner, len(self.log) + 1).trims)
            if self.crashes:
                dying = replace(self.put(number, Owner()), dead=(*self.dead, (owner.flying, owner)))
                yield f"{who} dies", replace(dying, crashes=self.crashes - 1)
            return
        if owner.trims is not None:
            yield f"{who} trims", self.trimmed(owner.trims).put(number, replace(owner, trims=None))
        if owner.read < len(self.log):
            new = tuple(place for place in self.places(Inputs) if place > owner.read)
            yield f"{who} reads on", self.put(number, replace(owner, read=len(self.log), pending=owner.pending + new))
        for what, data in self._appends(owner):
            yield f"{who} {what}", self.put(number, replace(owner, flying=data))
        if owner.state is not None and (owner.snapped == machine(owner.state).k or not self.rules.drops_clean):
            yield f"{who} drops its machine and reads it again", self._read_again(number, owner)

    def _read_again(self, number: int, owner: Owner) -> Partition:
        """Read the machine of an owner from the newest snapshot of all. Its commits are not read again."""
        assert owner.state is not None
        mine, at = self.owner_claim() == owner.claim, self.places(Snapshot)[-1] if self.places(Snapshot) else 0
        if at and (at < self.m_mark or any(ref.seqnum < self.m_mark for ref in self.refs(at))):
            return replace(self.put(number, Owner()), broken="a record that is needed was trimmed" if mine else "")
        found = self._snapshot(at) if at else None
        part = self.refs(at)[0].seqnum if at and self.refs(at) else at
        state, k = (encode_state(found), found.k) if found is not None else (None, -1)
        after = self.put(number, replace(owner, state=state, snapped=k, newest=at, part=part))
        return replace(after, broken="the state is wrong") if mine and k != machine(owner.state).k else after

    def _appends(self, owner: Owner) -> Iterator[tuple[str, bytes]]:
        state = machine(owner.state).copy() if owner.state is not None else None
        k = state.k if state is not None else 0
        if owner.pending:
            count = encode((COUNT.decode(state.registers["n"]) if state is not None else 0) + 1)
            took = (MessageId(owner.pending[0], 0),)
            yield (
                "commits",
                encoded(Commit(MACHINE, k + 1, took=took, kind="M" if not k else "", registers={"n": count})),
            )
        if state is not None and owner.snapped != k and len(self.places(Snapshot)) < self.snapshots:
            yield "appends a snapshot", encoded(Snapshot("g/m", k, 0, 1, encode_state(state)))
            if self.refer and owner.part:
                refs = (PartRef(owner.part, 0),)
                yield (
                    "appends a snapshot that refers",
                    encoded(Snapshot("g/m", k, 0, 1, encode_state(state), refs=refs)),
                )
        if state is None or len(self.places(Checkpoint)) >= self.checkpoints:
            return
        if owner.snapped == k or not self.rules.snapshots_first:
            for covers in sorted({owner.read, *(place - 1 for place in owner.pending[:1] if place > 1)}):
                known = PartitionState("g", 0)
                for place in owner.pending if self.rules.carries_pending else ():
                    known.apply(place, 0, 0, [self.event(place)])
                yield (
                    f"appends a checkpoint of {covers}",
                    encoded(Checkpoint("g/0", covers, 0, 1, known.checkpoint(covers))),
                )

    def _loaded(self, number: int, owner: Owner) -> Partition:
        found, mine = self.load(owner.claim), self.owner_claim() == owner.claim
        if found is None:
            lost = self.put(number, Owner())
            return replace(lost, broken="a record that is needed was trimmed") if mine else lost
        state, pending, snapped = found
        at = self._snapshot_at(owner.claim)
        part = self.refs(at)[0].seqnum if at and self.refs(at) else at
        count, missing = self.truth(owner.claim)
        value = COUNT.decode(state.registers["n"]) if state is not None else 0
        after = self.put(
            number,
            replace(
                owner,
                read=owner.claim,
                state=encode_state(state) if state else None,
                pending=pending,
                snapped=snapped,
                newest=at,
                part=part,
            ),
        )
        if mine and ((state.k if state else 0), value) != (count, count):
            return replace(after, broken="the state is wrong")
        return replace(after, broken="the pending inputs are wrong") if mine and pending != missing else after

    def trimmed(self, trims: tuple[str, int] | None) -> Partition:
        if trims is None:
            return self
        stream, mark = trims
        if stream == "m":
            return replace(self, m_mark=max(self.m_mark, mark))
        return replace(self, p_mark=max(self.p_mark, mark))

    def _copy(self, place: int) -> bytes:
        """Return a snapshot with its parts."""
        one = self.event(place)
        assert isinstance(one, Snapshot)
        return encoded(msgspec.structs.replace(one, refs=()))

    def _carrier_moves(self) -> Iterator[tuple[str, Partition]]:
        places = self.places(Snapshot)
        if self.copies is None and self.copied_at == 0 and self.carries and places:
            yield (
                "the carrier reads the snapshot",
                replace(self, carries=self.carries - 1, copies=self._copy(places[-1]), copied_at=len(self.log)),
            )
        if self.copies is not None:
            holds = not self.rules.copy_expects or places[-1] <= self.copied_at
            if not self.rules.copy_before_trim and self.m_mark <= self.copied_at:
                yield "the carrier trims", replace(self, m_mark=self.copied_at + 1)
            if holds:
                after = replace(self, log=(*self.log, self.copies), copies=None, copied_at=len(self.log) + 1)
                yield "the carrier appends a copy", after
            yield "the carrier stops", replace(self, copies=None, copied_at=0)
        elif self.copied_at:
            yield "the carrier trims", replace(self, m_mark=max(self.m_mark, self.copied_at), copied_at=0)


def acked(owner: Owner, place: int) -> Owner:
    """Return the owner after its append is at a place of the log."""
    assert owner.flying is not None
    event, done = decoded(owner.flying), replace(owner, flying=None)
    if isinstance(event, Commit):
        state = machine(owner.state).copy() if owner.state is not None else MachineState("M")
        state.apply(event)
        took = {one.seqnum for one in event.took}
        return replace(done, state=encode_state(state), pending=tuple(one for one in owner.pending if one not in took))
    if isinstance(event, Snapshot):
        part = event.refs[0].seqnum if event.refs else place
        return replace(done, snapped=event.k, newest=place, part=part, trims=("m", part))
    assert isinstance(event, Checkpoint)
    return replace(done, trims=("p", event.covers + 1))


AN_INPUT = encoded(Inputs("g", (Message(MACHINE, "Go"),)))


def partition(rules: Rules, *, early: int = 0, inputs: int = 0, **bounds: int) -> Partition:
    """Return a partition with some inputs in the log, and some that come at any time."""
    found = Partition(rules, inputs, claims=2, log=(AN_INPUT,) * early)
    return replace(found, **bounds)  # type: ignore[arg-type]


COMMITTED = (
    "owner 0 claims",
    "owner 0 loads",
    "owner 0 commits",
    "the append of owner 0 lands",
    "owner 0 appends a snapshot",
)


def after(world: Partition, steps: tuple[str, ...]) -> Partition:
    """Return the world after steps, by their names."""
    for step in steps:
        world = dict(world.moves())[step]
    return world


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "start",
    [
        partition(Rules(), inputs=1),
        partition(Rules(), early=2, crashes=0, snapshots=1),
        partition(Rules(), early=1, claims=3),
        partition(Rules(), early=1, carries=1),
        partition(Rules(), early=2, carries=1, crashes=0, checkpoints=0, refer=True),
    ],
    ids=["inputs", "commits", "takeovers", "carrier", "parts"],
)
def test_an_owner_finds_the_state_and_the_inputs_that_were_not_taken(start: Partition) -> None:
    found = search(start)
    assert (found.fault, found.path) == (None, [])
    assert found.states > 1_000


@pytest.mark.nightly
@pytest.mark.timeout(1_800)
def test_an_owner_finds_all_with_larger_bounds() -> None:
    found = search(partition(Rules(), early=1, inputs=1, claims=3, carries=1, checkpoints=2), limit=20_000_000)
    assert (found.fault, found.path) == (None, [])


@pytest.mark.parametrize(
    ("rule", "bounds", "steps", "fault"),
    [
        ("checkpoint_fenced", {"early": 1, "inputs": 1}, (), "trimmed|pending|twice"),
        ("snapshot_fenced", {"early": 2, "claims": 3}, (*COMMITTED, "owner 0 dies"), "state is wrong|trimmed"),
        (
            "copy_expects",
            {"early": 2, "crashes": 0, "carries": 1},
            (*COMMITTED, COMMITTED[3], "the carrier reads the snapshot"),
            "state is wrong|trimmed",
        ),
        ("copy_before_trim", {"early": 1, "crashes": 0, "carries": 1}, (), "state is wrong|trimmed"),
        ("trim_after_ack", {"early": 1}, (), "trimmed"),
        ("snapshots_first", {"early": 1}, (), "state is wrong|trimmed"),
        ("carries_pending", {"early": 1, "inputs": 1}, (), "pending"),
        ("newest_if_trimmed", {"early": 1, "crashes": 0, "carries": 1}, (), "state is wrong|trimmed"),
        ("by_number", {"early": 1}, (), "state is wrong"),
        ("drops_clean", {"early": 1}, (), "state is wrong"),
        (
            "refers_alone",
            {"early": 2, "crashes": 0, "carries": 1, "checkpoints": 0, "refer": True},
            (*COMMITTED, COMMITTED[3], "the carrier reads the snapshot"),
            "state is wrong|trimmed",
        ),
    ],
)
def test_without_a_rule_the_search_finds_what_goes_wrong(
    rule: str, bounds: dict[str, int], steps: tuple[str, ...], fault: str
) -> None:
    found = search(after(partition(replace(Rules(), **{rule: False}), **bounds), steps))
    assert found.fault is not None and found.path
    assert any(one in found.fault for one in fault.split("|")), found
