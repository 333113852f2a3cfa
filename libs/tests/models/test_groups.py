"""Group commit as a model over the store's own rules (`group_rules`): members that run on one another's state, foreign writes, a fence
that moves, voided records. In every schedule the result is that of some order; without a rule the search finds a lost update.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from bokilib.contribution import Contribution
from bokistore.group_rules import Member, after_conflict, record_of
from libs.tests.models.search import search


@dataclass(frozen=True)
class Rules:
    """Each broken variant turns one off."""

    lowest: bool = True
    dependents_run_again: bool = True
    expects_reads: bool = True
    sees_earlier_members: bool = True


BY = {1: 1, 2: 10, 3: 1_000}
"""What a member adds to x; each reads x, the odd ones y too."""
FOREIGN = 100


@dataclass(frozen=True)
class Run:
    """A member that has run: at which snapshot, what it makes of x, on whose state."""

    number: int
    snapshot: int
    makes: int
    ran_on: frozenset[int]


@dataclass(frozen=True)
class Group:
    """A process with members, and foreign ones that add to x or y."""

    rules: Rules
    members: int
    foreign: int
    fence_moves: int = 0
    log: tuple[tuple[str, int, tuple[int, ...]], ...] = (("f", 0, ()),)
    """(streams, x after it, members committed)"""
    runs: tuple[Run, ...] = ()
    flying: tuple[Run, ...] = ()
    over: bool = False

    def newest(self, stream: str) -> int:
        return max((at for at, row in enumerate(self.log, 1) if stream in row[0]), default=0)

    def x(self) -> int:
        return next((row[1] for row in reversed(self.log) if "x" in row[0]), 0)

    def committed(self) -> list[int]:
        return [number for row in self.log for number in row[2]]

    def fault(self) -> str | None:
        done = self.committed()
        if len(done) != len(set(done)):
            return f"twice: {done}"
        foreign = sum(FOREIGN for row in self.log if row[0] == "x" and not row[2])
        expected = sum(BY[number] for number in done) + foreign
        return None if self.x() == expected else f"x is {self.x()}, in any order it would be {expected}"

    def moves(self) -> Iterator[tuple[str, Group]]:
        if self.foreign:
            after = replace(self, foreign=self.foreign - 1)
            yield "a foreign one adds to x", replace(after, log=(*self.log, ("x", self.x() + FOREIGN, ())))
            yield "a foreign one touches y", replace(after, log=(*self.log, ("y", 0, ())))
        if self.fence_moves:
            yield "the fence moves", replace(self, fence_moves=0, log=(*self.log, ("f", 0, ())))
        if self.over:
            return
        if not self.flying:
            for number in range(1, self.members + 1):
                if number not in self.committed() and all(run.number != number for run in self.runs):
                    base = self.runs[-1].makes if self.runs and self.rules.sees_earlier_members else self.x()
                    ran_on = (
                        frozenset(run.number for run in self.runs) if self.rules.sees_earlier_members else frozenset()
                    )
                    run = Run(number, len(self.log), base + BY[number], ran_on)
                    yield f"member {number} runs", replace(self, runs=(*self.runs, run))
            if self.runs:
                yield "the group is sent", replace(self, flying=self.runs, runs=())
        else:
            yield "it is decided", self._decided()

    def _member(self, run: Run) -> Member:
        read = ("x", "y") if run.number % 2 and self.rules.expects_reads else ("x",)
        fences: dict[str, int | None] = {"f": 1}
        expect: dict[str, int | None] = dict.fromkeys(read, run.snapshot)
        part = Contribution(("x",), {**expect, **fences})
        return Member(
            run.number, "serializable", frozenset(read), frozenset("x"), frozenset("x"), fences, part, 1, run.ran_on
        )

    def _decided(self) -> Group:
        members = [self._member(run) for run in self.flying]
        expect = dict(record_of(members).part.expect)
        if not self.rules.lowest:
            expect |= {tag: max(member.part.expect.get(tag) or 0 for member in members) for tag in expect}
        moved: dict[str, int | None] = {
            tag: self.newest(tag) for tag, seqnum in expect.items() if self.newest(tag) > (seqnum or 0)
        }
        if not moved:
            numbers = tuple(run.number for run in self.flying)
            return replace(self, flying=(), log=(*self.log, ("x", self.flying[-1].makes, numbers)))
        verdict = after_conflict(members, moved)
        kept = {member.number for member in verdict.kept}
        if not self.rules.dependents_run_again:
            failed = {
                member.number
                for member in members
                if any(tag in moved and (moved[tag] or 0) > (seqnum or 0) for tag, seqnum in member.part.expect.items())
            }
            kept = {member.number for member in members} - failed
        runs = tuple(run for run in self.flying if run.number in kept)
        return replace(self, flying=(), runs=runs, over=bool(verdict.dropped))


@pytest.mark.parametrize(("members", "foreign", "fence_moves"), [(2, 2, 1), (3, 1, 1)])
def test_in_every_schedule_it_is_as_if_one_came_after_the_other(members: int, foreign: int, fence_moves: int) -> None:
    found = search(Group(Rules(), members, foreign, fence_moves))
    assert (found.fault, found.path) == (None, [])
    assert found.states > 100


@pytest.mark.parametrize("rule", ["lowest", "dependents_run_again", "sees_earlier_members"])
def test_without_a_rule_an_update_is_lost(rule: str) -> None:
    found = search(Group(replace(Rules(), **{rule: False}), 3, 1))
    assert found.fault is not None and "x is" in found.fault
    assert found.path
