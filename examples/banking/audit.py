"""Audits: all money of the bank is counted while transfers are on their way, without a pause.

This is the snapshot algorithm of Chandy and Lamport. It needs what `bokirsm` promises: events of one machine to another arrive in order,
each once, and what a handler changes and sends happens as a whole.

1. The auditor sends a mark to each machine.
2. At its first mark, from the auditor or from a peer, a machine counts its own money, and sends a mark to each peer.
3. Until the mark of a peer comes, it adds the money that the peer sends: that was on its way when the machine was counted.
4. Once it has all marks, it tells the auditor its sum.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from bokirsm import Ask, Event, Machine, Ref, Register, State

E = TypeVar("E")


class Peers(Event):
    """The machines that a machine exchanges money with, and the auditor."""

    peers: list[Ref[Mark]]
    auditor: Ref[Sum]


class Mark(Event):
    """A line between the events of one machine to another: what was sent before it belongs to an audit."""

    audit: int
    sender: Ref[Any]


class Sum(Event):
    """The money of one machine, and what was on its way to it."""

    cents: int


class Part(msgspec.Struct):
    """A machine's part of an audit.

    Attributes:
        audit: its number.
        cents: the money that it counted so far.
        unmarked: the machines whose mark has not come yet: what they send until then was on its way when this machine was counted.
    """

    audit: int = 0
    cents: int = 0
    unmarked: set[Ref[Any]] = msgspec.field(default_factory=set[Ref[Any]])


class Counted(Machine[E]):
    """Base class of machines that have money, or send some."""

    peers: Register[list[Ref[Mark]]] = Register([])
    auditor: Register[Ref[Sum]] = Register()
    part: Register[Part] = Register(Part())

    def join(self, e: Peers) -> None:
        """Learn the peers."""
        self.peers, self.auditor = e.peers, e.auditor

    def mark(self, e: Mark, own: int) -> None:
        """Handle a mark. `own`: the money of this machine now."""
        part = self.part
        if e.audit > part.audit:
            self.part = part = Part(e.audit, own, {self.auditor, *self.peers})
            for peer in self.peers:
                self.send(peer, Mark(e.audit, self.me))
        part.unmarked.discard(e.sender)
        if not part.unmarked:
            self.send(self.auditor, Sum(part.cents))

    def received(self, sender: Ref[Any], cents: int) -> None:
        """Count money that came, if it was on its way; called by each handler of an event with money."""
        if sender in self.part.unmarked:
            self.part.cents += cents


class Audit(Ask[int]):
    """A question for all cents, in accounts and on their way."""


class Members(Event):
    """All machines that have money or send some."""

    members: list[Ref[Mark]]


class Auditor(Machine[Members | Audit | Sum]):
    """Counts all money; one audit after the other."""

    members: Register[list[Ref[Mark]]] = Register([])
    number: Register[int] = Register(0)
    asked: Register[Audit] = Register()
    sums: Register[list[int]] = Register([])
    idle, counting = State(start=True), State(defer=(Audit,))

    @idle.on(Members)
    def meet(self, e: Members) -> None:
        self.members = e.members

    @idle.on(Audit)
    def begin(self, e: Audit) -> None:
        self.number += 1
        self.asked, self.sums = e, []
        for member in self.members:
            self.send(member, Mark(self.number, self.me))
        self.jump(self.counting)

    @counting.on(Sum)
    def add(self, e: Sum) -> None:
        self.sums.append(e.cents)
        if len(self.sums) == len(self.members):
            self.reply(self.asked, sum(self.sums))
            self.jump(self.idle)
