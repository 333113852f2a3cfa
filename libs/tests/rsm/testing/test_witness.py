"""Witnesses: their JSON, their story, and how they are repeated and made smaller."""

from __future__ import annotations

import json

import msgspec
import pytest

from boki_common.errors import InvalidArgument
from bokirsm import App, Event, Machine, Register, State
from bokirsm.testing import (
    Diverged,
    Limits,
    Monitor,
    Program,
    SeenMachine,
    TestRsm,
    Witness,
    parse_witness,
    replay,
    run_tests,
)
from bokirsm.testing.strategies import Decision
from bokirsm.testing.witness import text_of
from libs.tests.rsm.testing.subjects import APP, Cell, Clock, Go, Put, two_writers


class NoFour(Monitor):
    def committed(self, machine: SeenMachine) -> None:
        if machine.cls is Cell:
            assert machine.numbers[:2] != [3, 1], "3 came before 1"


async def crowd(rsm: TestRsm) -> None:
    """Two writers among machines that have nothing to do with them."""
    other = await rsm.create(Cell, key="other")
    for _ in range(3):
        await rsm.create(Clock, Go(other))
    await two_writers(rsm)


PROGRAM = Program(APP, crowd, [NoFour])


def found(*, shrink_s: float, seed: int = 1) -> Witness:
    witness = run_tests(PROGRAM, Limits(500, 600, shrink_s=shrink_s), seed=seed).witness
    assert witness is not None
    return witness


def test_a_witness_is_json_and_repeats_its_run_bit_for_bit() -> None:
    witness = found(shrink_s=0)
    data = json.loads(witness.json())
    assert data["app"] == "a" and data["decisions"][0] == ["run", "main"] and data["version"] == 1
    assert parse_witness(witness.json()) == witness
    first, second = replay(PROGRAM, witness), replay(PROGRAM, witness)
    assert first.fault is not None and first.fault.text == witness.fault
    assert first.story.digest == second.story.digest == witness.digest and first.story.lines == second.story.lines


def test_a_witness_becomes_small_and_tells_a_story() -> None:
    for seed in (1, 2, 3, 4):
        witness = found(shrink_s=60, seed=seed)
        assert witness.steps <= 10 and witness.found_steps >= 9 and witness.place == "NoFour.committed"
    told = text_of(witness, replay(PROGRAM, witness).story).splitlines()
    assert told[0].partition("\n")[0] == "NoFour.committed: AssertionError: 3 came before 1"
    assert any(line.endswith('cell (Cell in run) takes Put{"number":1}: numbers = [3,1], by[1] = 2') for line in told)


def test_a_program_that_has_changed_is_noticed() -> None:
    witness = found(shrink_s=0)
    with pytest.raises(Diverged, match="expected"):
        replay(PROGRAM._replace(main=two_writers), witness)

    async def other(rsm: TestRsm) -> None:
        cell = await rsm.create(Cell, Put(9), key="other")
        for _ in range(3):
            await rsm.create(Clock, Go(cell))
        await two_writers(rsm)

    with pytest.raises(Diverged, match="the program has changed"):
        replay(PROGRAM._replace(main=other), msgspec.structs.replace(witness, kind="monitor"))


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"version": 2}'])
def test_what_is_no_witness_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidArgument, match="expected a witness"):
        parse_witness(data)


def test_a_witness_of_a_later_version_is_refused() -> None:
    later = msgspec.structs.replace(found(shrink_s=0), version=2)
    with pytest.raises(InvalidArgument, match="version 1, found version 2"):
        parse_witness(later.json())


def test_decisions_of_a_witness_are_typed() -> None:
    assert all(isinstance(one, Decision) for one in found(shrink_s=0).script)


class Held(Event):
    seat: int


class Expired(Event):
    pass


class Booking(Machine[Held | Expired]):
    late: Register[bool] = Register(False)
    run, over = State(start=True), State(ignore=(Held, Expired))

    @run.entry
    def begin(self) -> None:
        self.after(1, Expired())
        self.after(2, Expired(), name="again")

    @run.on(Expired)
    def give_up(self, e: Expired) -> None:
        self.late = True
        self.jump(self.over)

    @run.on(Held)
    def hold(self, e: Held) -> None:
        self.halt()


class NeverLate(Monitor):
    def ended(self) -> None:
        assert not any(one.late for one in self.machines(Booking)), "a booking was late"


async def books(rsm: TestRsm) -> None:
    booking = await rsm.create(Booking, key="c")
    await rsm.send(booking, Held(7))


def test_the_story_of_a_run_has_a_line_for_each_step() -> None:
    """An event that a machine ignores has one, and a timer that fired is not called cancelled."""
    program = Program(App("b", [Booking]), books, [NeverLate])
    witness = run_tests(program, Limits(500, 600, shrink_s=60), seed=1).witness
    assert witness is not None
    lines = replay(program, witness).story.lines
    assert [int(line.split()[0]) for line in lines] == list(range(1, witness.steps + 1))
    texts = [line[7:] for line in lines]
    assert 'c (Booking in over) ignores Held{"seat":7}' in texts
    assert "c (Booking in over) timer 'again' fires: Expired{}, and ignores it" in texts
    assert "c (Booking in run) timer 'Expired' fires: Expired{}: enters over, late = true" in texts
