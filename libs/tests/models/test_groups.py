"""Group commit as a model over the store's own rules (`group_rules`, `turns`): bodies that run while records are on their way, on one
another's state, quickly or slowly; foreign writes, a fence that moves, answers that are lost, callers that give up.

In every schedule the result is that of some serial order, each transaction takes effect at most once, and a slow one loses to others of
its process at most a few times. If a rule is turned off, the search finds a lost update, or a body that starves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import pytest

from bokilib.records.contribution import Contribution
from bokistore.commit.group_rules import (
    Draft,
    Member,
    NewestSeqnums,
    Standing,
    after_conflict,
    must_see,
    outdated,
    standing,
)
from bokistore.commit.turns import Turns
from libs.tests.models.search import search

BY: Final = {1: 1, 2: 10, 3: 1_000, 4: 10_000, 5: 100_000}
"""The amount that each transaction adds to x; each reads x, the odd ones y too."""
FOREIGN: Final = 100
LOSSES: Final = 2
"""The number of losses after which a transaction of the model has the turn."""


@dataclass(frozen=True)
class Rules:
    """Each broken variant turns one off."""

    lowest: bool = True
    dependents_run_again: bool = True
    expects_reads: bool = True
    sees_earlier_members: bool = True
    ran_on_members_of_the_record: bool = True
    leaves_out_who_ran_on_a_withdrawn_one: bool = True
    turns: bool = True


@dataclass(frozen=True)
class Run:
    """A run of a body: of which transaction, at which snapshot, what it makes of x, on whose runs' state."""

    job: int
    number: int
    snapshot: int
    makes: int
    ran_on: frozenset[int] = frozenset()


State: TypeAlias = Literal["new", "running", "ready", "flying", "ended"]


@dataclass(frozen=True)
class Job:
    """A transaction. `losses`: to others of its process; `lost`: in all."""

    state: State = "new"
    run: Run | None = None
    losses: int = 0
    lost: int = 0


@dataclass(frozen=True)
class Group:
    """A process with transactions, of which those in `slow` never end within a record's patience, and foreign ones."""

    rules: Rules
    jobs: tuple[Job, ...]
    foreign: int
    slow: frozenset[int] = frozenset()
    fence_moves: int = 0
    unknown: int = 0
    withdraws: int = 0
    log: tuple[tuple[str, int, tuple[int, ...]], ...] = (("f", 0, ()),)
    """(streams, x after it, transactions committed)"""
    known: int = 1
    """Up to where the process has seen the log: what it knows of x is as of there."""
    moved: int = 0
    """The place to which x is known to have moved."""
    runs: int = 0

    # -- what is right

    def fault(self) -> str | None:
        done = [number for row in self.log for number in row[2]]
        if len(done) != len(set(done)):
            return f"twice: {done}"
        foreign = sum(FOREIGN for row in self.log if row[0] == "x" and not row[2])
        expected = sum(BY[number] for number in done) + foreign
        if self.x(len(self.log)) != expected:
            return f"x is {self.x(len(self.log))}, in any order it would be {expected}"
        starved = [number for number, job in enumerate(self.jobs, 1) if job.losses > LOSSES]
        return f"{starved} starve" if starved else None

    def newest(self, stream: str) -> int:
        return max((at for at, row in enumerate(self.log, 1) if stream in row[0]), default=0)

    def x(self, snapshot: int) -> int:
        return next((row[1] for row in reversed(self.log[:snapshot]) if "x" in row[0]), 0)

    # -- what may happen

    def moves(self) -> Iterator[tuple[str, Group]]:
        if self.foreign:
            after = replace(self, foreign=self.foreign - 1)
            x = self.x(len(self.log)) + FOREIGN
            yield "a foreign one adds to x", replace(after, log=(*self.log, ("x", x, ())))
            yield "a foreign one touches y", replace(after, log=(*self.log, ("y", 0, ())))
        if self.fence_moves:
            yield "the fence moves", replace(self, fence_moves=0, log=(*self.log, ("f", 0, ())))
        for number, job in enumerate(self.jobs, 1):
            if job.state in ("new", "running") and job.run is None:
                for snapshot in {self.known, len(self.log)}:
                    if snapshot >= self.moved:
                        began = self._began(number, snapshot)
                        if number not in self.slow:  # what is ready may be as old as what runs
                            began = began._with(number, replace(began.jobs[number - 1], state="ready"))
                        yield f"{number} reads as of {snapshot}", began.named()
            elif job.state == "running":
                yield f"{number} ends", self._with(number, replace(job, state="ready")).named()
            if self.withdraws and job.state in ("running", "ready"):
                ended = replace(self._with(number, replace(job, state="ended")), withdraws=0)
                yield f"{number} is given up", ended.named()
        flying = any(job.state == "flying" for job in self.jobs)
        if flying:
            yield "it is decided", self._decided().named()
            if self.unknown:
                yield from self._lost_answer()
        elif any(job.state == "ready" for job in self.jobs):
            for snapshot in {max(self.known, self.moved), len(self.log)}:
                yield f"a record is sent, read as of {snapshot}", self._sent(snapshot, None).named()
                for number, job in enumerate(self.jobs, 1):
                    if self.withdraws and job.state == "ready":
                        sent = self._sent(snapshot, number).named()
                        yield f"a record is sent, and {number} given up meanwhile", sent

    def named(self) -> Group:
        """The same state with the lowest numbers of runs: those of runs that are no more are all one."""
        live = sorted(job.run.number for job in self.jobs if job.run is not None and job.state != "ended")
        names = {number: at for at, number in enumerate(live, 1)}
        jobs = []
        for job in self.jobs:
            run = job.run if job.state != "ended" else None
            if run is not None:
                ran_on = frozenset(names.get(number, 0) for number in run.ran_on)
                run = replace(run, number=names[run.number], ran_on=ran_on)
            jobs.append(replace(job, run=run, lost=min(job.lost, LOSSES)))
        return replace(self, jobs=tuple(jobs), runs=len(live))

    def _with(self, number: int, job: Job) -> Group:
        return replace(self, jobs=(*self.jobs[: number - 1], job, *self.jobs[number:]))

    def _began(self, number: int, snapshot: int, draft: Draft | None = None, base: int = 0) -> Group:
        """A body that ran, at a snapshot, or on the state of a record."""
        members = [] if draft is None else draft.members
        makes = (self.x(snapshot) if not members else base) + BY[number]
        run = Run(number, self.runs + 1, snapshot, makes, frozenset(member.number for member in members))
        job = replace(self.jobs[number - 1], state="running", run=run)
        return replace(self._with(number, job), runs=self.runs + 1)

    def _member(self, run: Run) -> Member:
        read = ("x", "y") if run.job % 2 and self.rules.expects_reads else ("x",)
        fences: dict[str, int | None] = {"f": 1}
        expect: dict[str, int | None] = dict.fromkeys(read, run.snapshot)
        part = Contribution(("x",), {**expect, **fences})
        x = frozenset("x")
        return Member(run.number, "serializable", frozenset(read), x, x, fences, part, 1, run.ran_on)

    def _standing(self, member: Member, draft: Draft) -> Standing:
        newest = NewestSeqnums()
        newest.moved(["x"], self.moved)
        found = standing(member, draft, newest)
        if found is Standing.RUNS_AGAIN and not outdated(member, newest):
            away = not member.ran_on <= draft.numbers
            unseen = any(must_see(member, earlier) for earlier in draft.members)
            if (not away or not self.rules.ran_on_members_of_the_record) and (
                not unseen or not self.rules.sees_earlier_members
            ):
                return Standing.JOINS
        return found

    def _turns(self) -> Turns:
        turns = Turns(LOSSES)
        for number, job in enumerate(self.jobs, 1):
            if self.rules.turns and job.state != "ended":
                turns.lost(number, min(job.lost, LOSSES), "x")
        return turns

    def _sent(self, snapshot: int, given_up: int | None) -> Group:
        """The next record is put together, as in `GroupCommit._compose`; bodies that run again for it read as of a snapshot."""
        newest = NewestSeqnums()
        newest.moved(["x"], self.moved)
        after, draft, by_number = self, Draft(), dict[int, int]()
        for number, job in enumerate(self.jobs, 1):  # it runs outside, against what is committed
            run = job.run if number in self.slow and job.state == "ready" else None
            if run is not None and (run.ran_on or outdated(self._member(run), newest)):
                lost = replace(job, state="running", run=None, losses=job.losses + 1, lost=job.lost + 1)
                after = after._with(number, lost)
        turns = after._turns()
        for number, job in enumerate(after.jobs, 1):
            if job.state != "ready" or job.run is None or turns.waits(number, "x"):
                continue
            run, member = job.run, after._member(job.run)
            if after._standing(member, draft) is Standing.RUNS_AGAIN:
                if number in self.slow:
                    continue
                after = after._began(number, snapshot, draft, after._makes(draft, by_number))
                again = after.jobs[number - 1].run
                assert again is not None
                run, member = again, after._member(again)
            draft.add(member)
            by_number[member.number] = number
            after = after._with(number, replace(after.jobs[number - 1], state="flying", run=run))
        return after if given_up is None else after._given_up(given_up, draft, by_number)

    def _makes(self, draft: Draft, by_number: dict[int, int]) -> int:
        run = self.jobs[by_number[draft.members[-1].number] - 1].run if draft.members else None
        return run.makes if run is not None else 0

    def _given_up(self, given_up: int, draft: Draft, by_number: dict[int, int]) -> Group:
        """Cancel a caller while the record is put together."""
        gone = [number for number, job in by_number.items() if job == given_up]
        rest, dependents = draft.without(gone)
        after = replace(self._with(given_up, replace(self.jobs[given_up - 1], state="ended")), withdraws=0)
        if not self.rules.leaves_out_who_ran_on_a_withdrawn_one:
            return after
        for number in dependents:
            job = by_number[number]
            after = after._with(job, replace(after.jobs[job - 1], state="ready"))
        assert len(rest.members) == sum(job.state == "flying" for job in after.jobs)
        return after

    def _flying(self) -> list[Run]:
        return [job.run for job in self.jobs if job.state == "flying" and job.run is not None]

    def _moved(self, members: list[Member]) -> dict[str, int | None]:
        draft = Draft()
        for member in members:
            draft.add(member)
        expect = dict(draft.part().expect)
        if not self.rules.lowest:
            expect |= {tag: max(member.part.expect.get(tag) or 0 for member in members) for tag in expect}
        return {tag: self.newest(tag) for tag, seqnum in expect.items() if self.newest(tag) > (seqnum or 0)}

    def _all(self, state: State, *, run: bool = True) -> Group:
        jobs = [
            replace(job, state=state, run=job.run if run else None) if job.state == "flying" else job
            for job in self.jobs
        ]
        return replace(self, jobs=tuple(jobs))

    def _committed(self) -> Group:
        runs = self._flying()
        row = ("x", runs[-1].makes, tuple(run.job for run in runs))
        return replace(self._all("ended"), log=(*self.log, row))

    def _lost_answer(self) -> Iterator[tuple[str, Group]]:
        """Give all callers of the record an unknown outcome: none of them runs again."""
        once = replace(self, unknown=self.unknown - 1)
        if self._flying() and not self._moved([self._member(run) for run in self._flying()]):
            yield "it is in the log, and the answer lost", once._committed().named()
        yield "it is not in the log, and the answer lost", once._all("ended").named()

    def _decided(self) -> Group:
        runs = self._flying()
        members = [self._member(run) for run in runs]
        moved = self._moved(members)
        if not moved:
            after = self._committed()
            return replace(after, known=len(after.log), moved=len(after.log))
        verdict = after_conflict(members, moved)
        kept = {member.number for member in verdict.kept}
        dropped = {member.number for member in verdict.dropped}
        if not self.rules.dependents_run_again:
            failed = {
                member.number
                for member in members
                if any(tag in moved and (moved[tag] or 0) > (seqnum or 0) for tag, seqnum in member.part.expect.items())
            }
            kept = {member.number for member in members} - failed - dropped
        after = replace(self, known=len(self.log), moved=max(self.moved, moved.get("x") or 0))
        for run in runs:
            job = self.jobs[run.job - 1]
            if run.number in dropped:
                job = replace(job, state="ended")
            elif run.number in kept:
                job = replace(job, state="ready")
            else:
                job = replace(job, state="running", run=None, lost=job.lost + 1)
            after = after._with(run.job, job)
        return after


def group(members: int, **facts: object) -> Group:
    rules = facts.pop("rules", Rules())
    assert isinstance(rules, Rules)
    return replace(Group(rules, (Job(),) * members, 0), **facts)  # type: ignore[arg-type]  # the fields of a Group


@pytest.mark.parametrize(
    ("members", "facts"),
    [
        (2, {"foreign": 2, "fence_moves": 1, "unknown": 1}),
        (2, {"foreign": 1, "slow": frozenset({1}), "withdraws": 1}),
        (3, {"foreign": 1, "withdraws": 1}),
        (3, {"foreign": 1, "slow": frozenset({2})}),
        (4, {"slow": frozenset({1})}),
    ],
)
def test_in_every_schedule_it_is_as_if_one_came_after_the_other(members: int, facts: dict[str, object]) -> None:
    found = search(group(members, **facts))
    assert (found.fault, found.path) == (None, [])
    assert found.states > 500


@pytest.mark.parametrize(
    "rule",
    [
        "lowest",
        "sees_earlier_members",
        "ran_on_members_of_the_record",
        "leaves_out_who_ran_on_a_withdrawn_one",
    ],
)
def test_without_a_rule_an_update_is_lost(rule: str) -> None:
    found = search(group(3, foreign=1, withdraws=1, rules=replace(Rules(), **{rule: False})))
    assert found.fault is not None and ("x is" in found.fault or "twice" in found.fault)
    assert found.path


def test_a_dependent_that_was_kept_is_found_when_it_joins_the_next_record() -> None:
    found = search(group(3, foreign=1, withdraws=1, rules=replace(Rules(), dependents_run_again=False)))
    assert found.fault is None


def test_without_turns_a_slow_body_starves() -> None:
    found = search(group(4, slow=frozenset({1}), rules=replace(Rules(), turns=False)))
    assert found.fault == "[1] starve"
