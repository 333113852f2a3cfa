"""The survey of the paper (§6): a coordinator creates surveys; voters vote once each; a report has all votes that were taken.

Coordinator ── creates ──► Survey: voting ──Close──► closed ──Delete──► (halted)
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from bokirsm import App, Ask, Event, Machine, NoSuchMachine, Ref, Refused, Register, State, Table
from bokirsm.testing import Monitor, Program, SeenMachine, TestRsm

VOTERS = (("ann", "yes"), ("bob", "no"), ("ann", "no"))


class Vote(Ask[int]):
    voter: str
    choice: str


class Close(Ask[dict[str, int]]):
    pass


class Status(Ask[dict[str, int]]):
    pass


class Delete(Ask[int]):
    pass


class Begin(Event):
    name: str
    coordinator: Ref[Any]


class Deleted(Event):
    name: str


class Create(Ask[Ref[Vote | Close | Status | Delete]]):
    name: str


class Survey(Machine[Begin | Vote | Close | Status | Delete]):
    """Takes votes until it is closed."""

    name: Register[str] = Register("")
    coordinator: Register[Ref[Deleted]] = Register()
    votes: Table[str, str] = Table()
    report: Register[dict[str, int]] = Register({})
    voting = State(start=True)
    closed = State()

    @voting.on(Begin)
    def begin(self, e: Begin) -> None:
        self.name, self.coordinator = e.name, e.coordinator

    @voting.on(Vote)
    def vote(self, e: Vote) -> None:
        if e.voter in self.votes:
            raise Refused(f"{e.voter} has voted")
        self.votes[e.voter] = e.choice
        self.reply(e, len(self.votes))

    @voting.on(Status)
    @closed.on(Status)
    def status(self, e: Status) -> None:
        self.reply(e, self.tally())

    @voting.on(Close)
    def close(self, e: Close) -> None:
        self.report = self.tally()
        self.reply(e, self.report)
        self.jump(self.closed)

    @closed.on(Vote)
    def late(self, e: Vote) -> None:
        raise Refused("the survey is closed")

    @closed.on(Close)
    def again(self, e: Close) -> None:
        self.reply(e, self.report)

    @voting.on(Delete)
    @closed.on(Delete)
    def delete(self, e: Delete) -> None:
        self.send(self.coordinator, Deleted(self.name))
        self.reply(e, len(self.votes))
        self.halt()

    def tally(self) -> dict[str, int]:
        return dict(sorted(Counter(self.votes.values()).items()))


class LateSurvey(Survey):
    """A survey that takes votes after it was closed."""

    def late(self, e: Vote) -> None:
        self.vote(e)


class Coordinator(Machine[Create | Deleted]):
    """Creates surveys, one of each name."""

    surveys: Table[str, Ref[Any]] = Table()
    survey: type[Survey] = Survey
    run = State(start=True)

    @run.on(Create)
    def make(self, e: Create) -> None:
        if e.name not in self.surveys:
            self.surveys[e.name] = self.create(self.survey, Begin(e.name, self.me))
        self.reply(e, self.surveys[e.name])

    @run.on(Deleted)
    def forget(self, e: Deleted) -> None:
        del self.surveys[e.name]


class LateCoordinator(Coordinator):
    """A coordinator of surveys that take late votes."""

    survey = LateSurvey


class ReportIsComplete(Monitor):
    """The report of a closed survey has each vote that was taken, once."""

    def committed(self, machine: SeenMachine) -> None:
        if issubclass(machine.cls, Survey) and machine.state == "closed":
            assert sum(machine.report.values()) == len(machine.votes), f"{machine.report} of {machine.votes}"

    def ended(self) -> None:
        (coordinator,) = self.machines(Coordinator)
        assert len(coordinator.surveys) == sum(bool(one.state) for one in self.machines(Survey))


def surveys(coordinator: type[Coordinator] = Coordinator) -> Program:
    """Return the survey as the subject of a test: voters, of whom one votes twice, while it is closed and deleted."""

    async def vote(rsm: TestRsm, survey: Ref[Any], voter: str, choice: str) -> None:
        try:
            assert await rsm.ask(Vote(voter, choice).to(survey)) <= 2
        except (Refused, NoSuchMachine):
            pass

    async def end(rsm: TestRsm, survey: Ref[Any]) -> None:
        report = await rsm.ask(Close().to(survey))
        assert report == await rsm.ask(Close().to(survey)), "a report does not change"
        if rsm.choose([True, False]):
            await rsm.ask(Delete().to(survey))

    async def main(rsm: TestRsm) -> None:
        made = await rsm.create(coordinator, key="coordinator")
        survey = await rsm.ask(Create("lunch").to(made))
        assert survey == await rsm.ask(Create("lunch").to(made))
        for voter, choice in VOTERS:
            rsm.start(vote(rsm, survey, voter, choice))
        rsm.start(end(rsm, survey))
        try:
            assert sum((await rsm.ask(Status().to(survey))).values()) <= 2
        except NoSuchMachine:
            pass  # it was deleted

    app = App("surveys", [coordinator, coordinator.survey])
    return Program(app, main, [ReportIsComplete])
