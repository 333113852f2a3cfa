"""A machine by itself: its handlers run one after the other, without a log."""

from __future__ import annotations

from typing import Any

from bokirsm import Event, Machine, Ref
from bokirsm.machine.declaration import Reaction
from bokirsm.machine.handling import Work, World, creation, handle, message, reaction
from bokirsm.machine.plugins import PluginDeclaration
from bokirsm.model.events import Commit, Message
from bokirsm.model.lane_record import ALONE
from bokirsm.model.machine_state import MachineState


class SetTokens:
    """Tokens that a test sets: each byte of a token is the next number."""

    def __init__(self) -> None:
        self.next = 0

    def token(self, size: int) -> bytes:
        self.next += 1
        return bytes([self.next % 256] * size)


class OneMachine:
    """A machine whose commits are applied at once.

    Attributes:
        commits: all of them.
        beside: what the newest one has beside it in its record.
        loose: what its handler sent at most once.
        plugins: those of its app.
    """

    def __init__(self, cls: type[Machine[Any]], init: Event | None = None, *, now_ms: int = 1_000) -> None:
        self.declaration = cls.declaration
        self.me: Ref[Any] = Ref("g", 7, "m")
        self.now_ms = now_ms
        self.tokens = SetTokens()
        self.volatile: dict[str, Any] = {}
        self.state = MachineState(self.declaration.kind)
        self.commits: list[Commit] = []
        self.beside = ALONE
        self.loose: tuple[Message, ...] = ()
        self.plugins: dict[str, PluginDeclaration] = {}
        made = creation(self.me, self.declaration, init)
        self.work(Work(made.event, made.body, creates=True))

    def work(self, work: Work) -> Commit:
        before = self.state.copy()
        try:
            world = World(self.me, self.now_ms, self.tokens, self.plugins)
            commit, self.beside, self.loose = handle(self.declaration, self.state, self.volatile, work, world)
        except BaseException:
            assert self.state == before, "a failed handler changes nothing"
            raise
        assert self.state == before, "only the commit changes the state"
        self.state.apply(commit)
        self.commits.append(commit)
        return commit

    def give(self, event: Event) -> Commit:
        one = message(self.me, event)
        return self.work(Work(one.event, one.body))

    def reaction(self, event: Event) -> Reaction:
        one = message(self.me, event)
        return reaction(self.declaration, self.state, Work(one.event, one.body))

    def fire(self, name: str) -> Commit:
        timer = self.state.timers[name]
        return self.work(Work(timer.event, timer.body, timer=name))
