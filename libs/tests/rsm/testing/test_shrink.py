"""Shrinking: random choices become small, and crashes that are not needed go."""

from __future__ import annotations

from bokirsm import App, Machine, Register, State, Volatile
from bokirsm.testing import Limits, Monitor, Program, SeenMachine, TestRsm, run_tests, shrunk
from libs.tests.rsm.testing.subjects import Put


class Dice(Machine[Put]):
    sum: Register[int] = Register(0)
    puts: Volatile[int] = Volatile(int)
    run = State(start=True)

    @run.on(Put)
    def put(self, e: Put) -> None:
        self.puts += 1
        self.sum += self.random.below(1_000)


class Small(Monitor):
    def committed(self, machine: SeenMachine) -> None:
        assert machine.sum < 700


async def throws(rsm: TestRsm) -> None:
    dice = await rsm.create(Dice, key="dice")
    for number in range(20):
        await rsm.send(dice, Put(number))


PROGRAM = Program(App("d", [Dice]), throws, [Small])


def test_numbers_become_small_and_other_decisions_go() -> None:
    witness = run_tests(PROGRAM, Limits(100, 600, shrink_s=0)).witness
    assert witness is not None
    small = shrunk(PROGRAM, witness, lambda: True)
    picks = [one.value for one in small.script if one.kind == "pick"]
    assert picks == [700] and small.steps == 4 and small.found_steps == witness.steps
    assert [one.value for one in small.script if one.kind == "crash"] == []
    assert shrunk(PROGRAM, small, lambda: True) == small


def test_without_time_the_witness_stays() -> None:
    witness = run_tests(PROGRAM, Limits(100, 600, shrink_s=0)).witness
    assert witness is not None and shrunk(PROGRAM, witness, lambda: False) == witness
