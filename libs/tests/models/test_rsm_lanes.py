"""A model of lanes, over the library's own rules (`lane_record`, `partition_state`): two hosts that claim partitions from one another at
any time, crashes with an append on its way, messages that are handled before they are durable.

Machine A is in partition 0: for each input it sends one event to B. B is in partition 1, and answers each event. In each execution every
input is answered once, by commits that form one chain a machine. Seqnums are names of records here: they are known when a record is sealed,
so that the variant with two records in flight can be written at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import msgspec
import pytest

from bokilib.records import tags
from bokirsm.model.events import SAME_RECORD, AnyEvent, Commit, Inputs, Message, MessageId, Reply, messages_of
from bokirsm.model.lane_record import InboxMessage, LaneRecord, expectations
from bokirsm.model.partition_state import PartitionState, machine_of
from libs.tests.models.search import search

A, B = "g/0/a", "g/1/b"
PARTITION = {A: 0, B: 1}
INPUT_NAME = 1_000


@dataclass(frozen=True)
class Rules:
    """Each broken variant turns one off."""

    fenced: bool = True
    one_record: bool = True
    in_flight: int = 1
    in_order: bool = True
    """An append that was given up, and is void, is followed by no other: the lane settles it first."""


@dataclass(frozen=True)
class Waits:
    """A message in the inbox of a host."""

    name: int
    number: int
    message: Message


@dataclass(frozen=True)
class Flying:
    """A record on its way."""

    name: int
    events: tuple[bytes, ...]
    expect: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Done:
    """A commit that is in no record yet, and what it took."""

    commit: bytes
    took: Waits


@dataclass(frozen=True)
class Host:
    """A process: `claims` are pairs of partition and claim; empty while it is dead."""

    claims: tuple[tuple[int, int], ...] = ()
    read: int = 0
    inbox: tuple[Waits, ...] = ()
    done: tuple[Done, ...] = ()
    flying: tuple[Flying, ...] = ()
    commits: tuple[tuple[str, int], ...] = ()
    sealed: int = 0


def encoded(event: AnyEvent) -> bytes:
    return msgspec.msgpack.encode(event)


@cache
def decoded(data: bytes) -> AnyEvent:
    found: AnyEvent = msgspec.msgpack.decode(data, type=Commit | Inputs)
    return found


@dataclass(frozen=True)
class Lanes:
    """The log, by places from 1: (name, events) of a record, or (-partition - 1, ()) for a claim."""

    rules: Rules
    log: tuple[tuple[int, tuple[bytes, ...]], ...]
    hosts: tuple[Host, ...]
    claims: int
    crashes: int = 1
    voids: int = 0

    def claim_of(self, partition: int) -> int:
        return max((place for place, (name, _) in enumerate(self.log, 1) if name == -partition - 1), default=0)

    def events(self, place: int) -> list[AnyEvent]:
        return [decoded(data) for data in self.log[place - 1][1]]

    def state(self, partition: int, last: int) -> PartitionState:
        state = PartitionState("g", partition)
        for place, (name, _) in enumerate(self.log[:last], 1):
            state.apply(name, 0, 0, self.events(place))
        return state

    def fault(self) -> str | None:
        taken: set[MessageId] = set()
        sent: set[MessageId] = set()
        chain = {A: 0, B: 0}
        for place, (name, _) in enumerate(self.log, 1):
            events = self.events(place)
            sent |= {MessageId(name, number) for number, _ in messages_of(events)}
            for event in events:
                if isinstance(event, Commit):
                    ids = {MessageId(name, one.number) if one.seqnum == SAME_RECORD else one for one in event.took}
                    if ids & taken:
                        return "taken twice"
                    if ids - sent:
                        return "took a message that was never sent"
                    if event.k != chain[event.id] + 1:
                        return "two chains of commits"
                    chain[event.id], taken = event.k, taken | ids
        if next(self.moves(), None) is None and not self._finishes():
            return "an input is not answered once"
        return None

    def _finishes(self) -> bool:
        """Return whether a new owner of all, alone, ends with one answer for each input."""
        replies: list[str] = []
        pending: list[Message] = []
        for partition in (0, 1):
            pending += self.state(partition, len(self.log)).pending.values()
        for place in range(1, len(self.log) + 1):
            for event in self.events(place):
                replies += [one.asker for one in event.replies] if isinstance(event, Commit) else []
        replies += [message.event for message in pending]
        return sorted(replies) == sorted(message.event for _, message in messages_of([decoded(self.log[0][1][0])]))

    # -- moves

    def put(self, number: int, host: Host, *records: tuple[int, tuple[bytes, ...]]) -> Lanes:
        hosts = (*self.hosts[:number], host, *self.hosts[number + 1 :])
        return replace(self, hosts=hosts, log=(*self.log, *records))

    def moves(self) -> Iterator[tuple[str, Lanes]]:
        for number, host in enumerate(self.hosts):
            mine = dict(host.claims)
            for partition in (0, 1):
                if self.claims and partition not in mine and not host.flying and not host.done:
                    yield f"host {number} claims {partition}", self._claimed(number, host, partition)
            if mine and host.read < len(self.log):
                yield f"host {number} reads on", self.put(number, self._follow(host))
            if mine:
                for machine in (A, B):
                    if any(one.message.to == machine for one in host.inbox):
                        yield f"host {number} handles {machine}", self.put(number, handled(number, host, machine))
            if host.done and len(host.flying) < self.rules.in_flight:
                yield f"host {number} seals its record", self.put(number, self._sealed(number, host))
            if host.flying:
                yield from self._landings(number, host)
            if self.crashes and mine:
                dead = Host(flying=host.flying, sealed=host.sealed)
                yield f"host {number} dies", replace(self.put(number, dead), crashes=self.crashes - 1)

    def _claimed(self, number: int, host: Host, partition: int) -> Lanes:
        after = replace(self, log=(*self.log, (-partition - 1, ())), claims=self.claims - 1)
        return after.put(number, after.loaded(host, {*dict(host.claims), partition}))

    def loaded(self, host: Host, partitions: set[int]) -> Host:
        """Return a host that has read all of its partitions."""
        inbox, commits = list[Waits](), dict[str, int]()
        for partition in sorted(partitions):
            state = self.state(partition, len(self.log))
            inbox += [Waits(*id, message) for id, message in state.pending.items()]
            for machine, several in state.commits.items():
                whole = machine_of(None, sorted(several, key=lambda one: one.k))
                commits[machine] = whole.k if whole is not None else 0
        claims = {one: dict(host.claims).get(one) or self.claim_of(one) for one in partitions}
        return Host(
            tuple(claims.items()), len(self.log), tuple(inbox), commits=tuple(commits.items()), sealed=host.sealed
        )

    def _follow(self, host: Host) -> Host:
        name = self.log[host.read][0]
        known = {(one.name, one.number) for one in (*host.inbox, *(done.took for done in host.done))}
        own = name in range(100 * self.hosts.index(host) + 1, 100 * self.hosts.index(host) + 100)
        new = [
            Waits(name, number, message)
            for number, message in messages_of(self.events(host.read + 1))
            if not own and PARTITION[message.to] in dict(host.claims) and (name, number) not in known
        ]
        return replace(host, read=host.read + 1, inbox=(*host.inbox, *new))

    def _sealed(self, number: int, host: Host) -> Host:
        """Return the host with its open record, or its part of one partition, on its way."""
        first = PARTITION[commit_of(host.done[0]).id]
        chosen = [one for one in host.done if self.rules.one_record or PARTITION[commit_of(one).id] == first]
        name = 100 * number + host.sealed + 1
        record = LaneRecord("g")
        for one in chosen:
            inside = one.took.name == name_of_open(number, host)
            took = InboxMessage(one.took.message, one.took.name, one.took.number, record if inside else None)
            record.add(commit_of(one), took)
        found = record.contribution(dict(host.claims))
        expect = expectations("g", dict(host.claims), record.partitions) if self.rules.fenced else {}
        assert not self.rules.fenced or expect == found.expect
        flying = Flying(
            name, tuple(map(encoded, record.events())), tuple((tag, seqnum or 0) for tag, seqnum in expect.items())
        )
        rest = tuple(one for one in host.done if one not in chosen)
        return replace(host, done=rest, flying=(*host.flying, flying), sealed=host.sealed + 1)

    def _landings(self, number: int, host: Host) -> Iterator[tuple[str, Lanes]]:
        first, *others = host.flying
        holds = all(
            self.claim_of(one) <= seqnum
            for one in (0, 1)
            for tag, seqnum in first.expect
            if tag == tags.rsm_owner("g", one)
        )
        rest = replace(host, flying=tuple(others))
        if holds:
            yield f"a record of host {number} lands", self.put(number, rest, (first.name, first.events))
        elif not host.claims:
            yield f"a record of a dead host {number} is void", self.put(number, rest)
        else:
            yield f"host {number} reloads after a Conflict", self.put(number, self._reloaded(host, others))
        if self.voids and others and not self.rules.in_order:
            after = self.put(number, replace(self._reloaded(host, others), flying=tuple(others)))
            yield f"a record of host {number} is given up", replace(after, voids=self.voids - 1)

    def _reloaded(self, host: Host, others: Sequence[Flying]) -> Host:
        kept = {one for one, claim in host.claims if self.claim_of(one) == claim}
        return replace(
            self.loaded(replace(host, claims=tuple(x for x in host.claims if x[0] in kept)), kept), flying=tuple(others)
        )


def commit_of(done: Done) -> Commit:
    found = decoded(done.commit)
    assert isinstance(found, Commit)
    return found


def name_of_open(number: int, host: Host) -> int:
    return 100 * number + host.sealed + 1


def handled(number: int, host: Host, machine: str) -> Host:
    """Return the host after the first message of a machine was handled."""
    took = next(one for one in host.inbox if one.message.to == machine)
    k = dict(host.commits).get(machine, 0) + 1
    token = took.message.event
    if machine == A:
        commit = Commit(A, k, kind="A" if k == 1 else "", sends=(Message(B, token),))
    else:
        commit = Commit(B, k, kind="B" if k == 1 else "", replies=(Reply(token, "answer", b""),))
    inbox = tuple(one for one in host.inbox if one is not took)
    if machine == A and 1 in dict(host.claims):
        before = sum(len(commit_of(one).sends) for one in host.done)
        inbox += (Waits(name_of_open(number, host), before, commit.sends[0]),)
    commits = tuple({**dict(host.commits), machine: k}.items())
    return replace(host, inbox=inbox, done=(*host.done, Done(encoded(commit), took)), commits=commits)


def lanes(rules: Rules, *, inputs: int = 2, claims: int = 3, crashes: int = 1, voids: int = 0) -> Lanes:
    tokens = tuple(Message(A, f"p/{number}") for number in range(inputs))
    return Lanes(rules, ((INPUT_NAME, (encoded(Inputs("g", tokens)),)),), (Host(), Host()), claims, crashes, voids)


@pytest.mark.parametrize(
    "start",
    [lanes(Rules(), inputs=1, claims=3), lanes(Rules(), inputs=2, claims=2)],
    ids=["takeovers", "inputs"],
)
def test_each_input_is_answered_once(start: Lanes) -> None:
    found = search(start)
    assert (found.fault, found.path) == (None, [])
    assert found.states > 1_000


@pytest.mark.nightly
def test_each_input_is_answered_once_with_larger_bounds() -> None:
    found = search(lanes(Rules(), inputs=2, claims=4), limit=20_000_000)
    assert (found.fault, found.path) == (None, [])


@pytest.mark.parametrize(
    ("rules", "voids", "fault"),
    [
        (Rules(fenced=False), 0, "taken twice"),
        (Rules(one_record=False), 0, "never sent"),
        (Rules(in_flight=2), 0, "never sent"),
        (Rules(in_flight=2, in_order=False), 1, "two chains"),
    ],
    ids=["no fence", "a record for each partition", "two in flight", "the earlier one given up"],
)
def test_without_a_rule_the_search_finds_what_goes_wrong(rules: Rules, voids: int, fault: str) -> None:
    found = search(lanes(rules, voids=voids))
    assert found.fault is not None and found.path
    assert fault in found.fault
