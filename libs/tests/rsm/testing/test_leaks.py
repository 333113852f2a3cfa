"""The check of handlers: it finds what depends on volatile state, on a process or on choices of Python, and nothing else."""

from __future__ import annotations

import random
import threading
from enum import Enum
from typing import Any

import msgspec
import pytest

from bokirsm import App, Machine, Ref, Register, State, Volatile
from bokirsm.testing import Limits, Program, TestRsm, replay, run_tests
from libs.tests.rsm.testing.subjects import APP, Leaky, Put, Tick

LIMITS = Limits(100, 600, shrink_s=0)


async def leaks(rsm: TestRsm) -> None:
    leaky = await rsm.create(Leaky, key="leaky")
    await rsm.send_many([(leaky, Put(1)), (leaky, Tick()), (leaky, Put(2))])


def test_a_leak_of_volatile_state_is_found_and_its_field_named() -> None:
    witness = run_tests(Program(APP, leaks), LIMITS).witness
    assert witness is not None and (witness.kind, witness.place) == ("leak", "Leaky Put seen")
    assert "depends on the volatile field seen\n  first:  last = 2\n  then:   nothing" in witness.fault


def test_the_check_can_be_left_out() -> None:
    assert run_tests(Program(APP, leaks, leaks=False), LIMITS).witness is None


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


SHADES = {Colour.RED: 1, Colour.BLUE: 2}


class Pair(msgspec.Struct, frozen=True):
    name: str
    to: Ref[Any]


class Fair(Machine[Put | Tick]):
    """Uses all that a handler may use: choices, time, ids, memory without effect, and keys with hashes of their own."""

    number: Register[int] = Register(0)
    ids: Register[list[str]] = Register([])
    names: Register[set[str]] = Register(set())
    made: Register[list[Ref[Tick]]] = Register([])
    cache: Volatile[dict[Any, int]] = Volatile(dict)
    lock: Volatile[Any] = Volatile(threading.Lock)
    run = State(start=True)

    @run.on(Put)
    def put(self, e: Put) -> None:
        if e.number not in self.cache:
            self.cache[e.number] = e.number**2
        self.number = self.cache[e.number] + self.random.below(10)
        self.ids.append(f"{self.uuid()} {self.now} {self.random.fraction()} {self.random.choice('abc')}")
        self.names |= {"ann", "bob", str(e.number)}
        self.cache[Pair("a", self.me)] = SHADES[Colour.RED]
        assert self.cache[Pair("a", self.me)] == 1
        with self.lock:
            self.made.append(self.create(Other))

    @run.on(Tick)
    def tick(self, e: Tick) -> None:
        self.number += 1


class Other(Machine[Tick]):
    run = State(start=True, ignore=(Tick,))


async def fair(rsm: TestRsm) -> None:
    one = await rsm.create(Fair, key="fair")
    for number in (1, 2, 1):
        await rsm.send_many([(one, Put(number)), (one, Tick())])


def test_no_alarm_on_handlers_whose_choices_are_controlled() -> None:
    assert run_tests(Program(App("f", [Fair, Other]), fair), LIMITS).witness is None


class Rolls(Machine[Put]):
    number: Register[int] = Register(0)
    run = State(start=True)

    @run.on(Put)
    def put(self, e: Put) -> None:
        self.number = random.randrange(1 << 60)


class Hashes(Machine[Put]):
    number: Register[int] = Register(0)
    run = State(start=True)

    @run.on(Put)
    def put(self, e: Put) -> None:
        self.number = hash(("a", b"b"))


@pytest.mark.parametrize(("cls", "cause"), [(Rolls, "random, time or ids of Python"), (Hashes, "the hash of a text")])
def test_a_choice_that_is_not_controlled_is_found(cls: type[Machine[Put]], cause: str) -> None:
    async def main(rsm: TestRsm) -> None:
        await rsm.send(await rsm.create(cls), Put(1))

    program = Program(App("c", [cls]), main)
    witness = run_tests(program, LIMITS).witness
    assert witness is not None and witness.kind == "uncontrolled" and cause in witness.fault
    assert replay(program, witness).fault is not None


class Wild(Machine[Put]):
    run = State(start=True)

    @run.on(Put)
    def put(self, e: Put) -> None:
        for _ in range(random.randrange(100)):
            self.send(self.me, Put(self.random.below(3)))


def test_a_run_that_cannot_be_repeated_has_a_witness_without_a_story() -> None:
    async def main(rsm: TestRsm) -> None:
        await rsm.send(await rsm.create(Wild), Put(1))

    program = Program(App("w", [Wild]), main, steps=50)
    witness = run_tests(program, Limits(100, 600)).witness
    assert witness is not None and witness.kind == "uncontrolled"
    assert replay(program, witness).fault is not None
