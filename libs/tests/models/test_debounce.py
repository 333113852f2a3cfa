"""A model of debounced starts: clients that call while a round closes, that send by an outdated look, and whose answers are lost, so that
they call again; a round whose timer fires at any moment.

A call whose sender knows its round is in the start of that round or of an older one, and in no other; and no two rounds are open at a
time. If a rule is turned off, the search finds an execution that breaks this.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from libs.tests.models.search import search


@dataclass(frozen=True)
class Rules:
    """Each broken variant turns one off.

    Attributes:
        checks: after sending a call a client looks whether the round had closed before it.
        signal: a round closes by a signal to itself, and starts the newest call before it.
        one_record: the signal and the mark that others see are one record.
        marks_last: of two records (`one_record` off) the signal is the first.
        chain: the next round's id is made from the id of the one before.
    """

    checks: bool = True
    signal: bool = True
    one_record: bool = True
    marks_last: bool = False
    chain: bool = True


@dataclass(frozen=True)
class ModelRecord:
    """A record: "start" of a round, "call", "mark" and "signal" of its closing; "run", of a round that does not signal itself. `round`: the
    place of its start; of a start: that of the round before."""

    kind: str
    round: int
    who: str = ""


@dataclass(frozen=True)
class Client:
    """A client that calls once. step: the next one. found: a round. sent: where its call is. joined: the round that it is in."""

    who: str
    step: str = "looks"
    found: int = 0
    sent: int = 0
    joined: int = 0


@dataclass(frozen=True)
class Calls:
    """The log, the clients, and how many calls each round has received, if that matters. `lost`: answers that may still be lost."""

    rules: Rules
    clients: tuple[Client, ...]
    lost: int = 0
    log: tuple[ModelRecord, ...] = ()
    received: tuple[tuple[int, int], ...] = ()
    again: tuple[str, ...] = ()
    """Calls whose answer was lost: they may be done twice."""

    # -- the log

    def places(self, kind: str, begun: int) -> list[int]:
        return [at for at, row in enumerate(self.log, 1) if (row.kind, row.round) == (kind, begun)]

    def rounds(self) -> list[int]:
        return [at for at, row in enumerate(self.log, 1) if row.kind == "start"]

    def closed(self, begun: int, at: int) -> bool:
        """Return whether others see that the round closed before a place."""
        return any(place < at for place in self.places("mark", begun))

    def appended(self, *rows: ModelRecord) -> Calls:
        return replace(self, log=(*self.log, *rows))

    def ran(self, begun: int) -> str | None:
        """Return the call that the round started or will start, once that is final."""
        for signal in self.places("signal", begun):
            return self.log[max(at for at in self.places("call", begun) if at < signal) - 1].who
        return next((self.log[at - 1].who for at in self.places("run", begun)), None)

    # -- what is wrong

    def fault(self) -> str | None:
        open_ones = [begun for begun in self.rounds() if not self.places("mark", begun)]
        if len(open_ones) > 1:
            return f"two rounds at a time: {open_ones}"
        for client in self.clients:
            if not client.joined:
                continue
            newest = self.ran(client.joined)
            if newest is not None and self._place(client.joined, newest) < client.sent:
                return f"the call of {client.who} is lost: its round started that of {newest}"
            for begun in self.rounds():
                if begun != client.joined and self.ran(begun) == client.who and client.who not in self.again:
                    return f"the call of {client.who} is done by {begun} and by {client.joined}"
        if next(self.moves(), None) is None and not all(self.ran(client.joined) for client in self.clients):
            return "a call is never done"
        return None

    def _place(self, begun: int, who: str) -> int:
        return max(at for at in self.places("call", begun) if self.log[at - 1].who == who)

    # -- steps

    def moves(self) -> Iterator[tuple[str, Calls]]:
        for index, client in enumerate(self.clients):
            if client.step != "done":
                yield f"{client.who} {client.step}", getattr(self, f"_client_{client.step}")(index, client)
                if client.step == "sends" and self.lost:
                    yield f"{client.who} sends and gets no answer", self._gets_no_answer(index, client)
        for begun in self.rounds():
            yield from self._round(begun)

    def _is(self, index: int, client: Client) -> Calls:
        return replace(self, clients=(*self.clients[:index], client, *self.clients[index + 1 :]))

    def _client_looks(self, index: int, client: Client) -> Calls:
        newest = max(self.rounds(), default=0)
        over = not newest or self.closed(newest, len(self.log) + 1)
        return self._is(index, replace(client, found=newest, step="begins" if over else "sends"))

    def _client_begins(self, index: int, client: Client) -> Calls:
        there = self.places("start", client.found) if self.rules.chain else []
        world = self if there else self.appended(ModelRecord("start", client.found))
        found = there[0] if there else len(world.log)
        over = world.closed(found, len(world.log) + 1)
        return world._is(index, replace(client, found=found, step="begins" if over else "sends"))

    def _client_sends(self, index: int, client: Client) -> Calls:
        world = self.appended(ModelRecord("call", client.found, client.who))
        return world._is(index, replace(client, sent=len(world.log), step="checks"))

    def _gets_no_answer(self, index: int, client: Client) -> Calls:
        world = self.appended(ModelRecord("call", client.found, client.who))
        return replace(world, lost=self.lost - 1, again=(*self.again, client.who))._is(index, Client(client.who))

    def _client_checks(self, index: int, client: Client) -> Calls:
        if self.rules.checks and self.closed(client.found, client.sent):
            return self._is(index, replace(client, step="begins"))
        return self._is(index, replace(client, joined=client.found, step="done"))

    def _round(self, begun: int) -> Iterator[tuple[str, Calls]]:
        if self.ran(begun) is not None and self.places("mark", begun):
            return
        received, calls = dict(self.received).get(begun, 0), self.places("call", begun)
        mark, signal = self.places("mark", begun), self.places("signal", begun)
        if not mark and not signal:
            if received < len(calls) and not self.rules.signal:
                kept = tuple(pair for pair in self.received if pair[0] != begun)
                yield f"{begun} receives", replace(self, received=tuple(sorted((*kept, (begun, received + 1)))))
            if received or (calls and self.rules.signal):
                yield f"{begun} fires", self._fires(begun, self.log[calls[received - 1] - 1].who)
        elif not mark:
            yield f"{begun} marks that it closed", self.appended(ModelRecord("mark", begun))
        elif not signal:
            yield f"{begun} signals itself", self.appended(ModelRecord("signal", begun))

    def _fires(self, begun: int, newest: str) -> Calls:
        if not self.rules.signal:
            return self.appended(ModelRecord("mark", begun), ModelRecord("run", begun, newest))
        if self.rules.one_record:
            return self.appended(ModelRecord("mark", begun), ModelRecord("signal", begun))
        return self.appended(ModelRecord("signal" if self.rules.marks_last else "mark", begun))


def world(rules: Rules, clients: int, lost: int) -> Calls:
    return Calls(rules, tuple(Client(who) for who in "xyz"[:clients]), lost)


@pytest.mark.parametrize(("clients", "lost"), [(2, 1), (3, 0)])
def test_each_call_is_done_by_one_round_or_by_a_newer_call_of_it(clients: int, lost: int) -> None:
    found = search(world(Rules(), clients, lost))
    assert (found.fault, found.path) == (None, [])
    assert found.states > 200


@pytest.mark.parametrize(
    ("rules", "fault"),
    [
        (Rules(checks=False), "is lost"),
        (Rules(signal=False), "is lost"),
        (Rules(one_record=False), "is done by"),
        (Rules(one_record=False, marks_last=True), "is lost"),
        (Rules(chain=False), "two rounds at a time"),
    ],
)
def test_without_a_rule_a_call_is_lost_or_done_twice(rules: Rules, fault: str) -> None:
    found = search(world(rules, 2, 0))
    assert found.fault is not None and fault in found.fault, found
