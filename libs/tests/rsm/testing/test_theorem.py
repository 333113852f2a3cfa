"""Theorem 3.1 of the paper on tiny programs: crashes add no trace, and the tester's DFS finds exactly the traces of the paper's rules.

Those of hosts, which die at any operation, are among them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from boki import Book
from boki.testing import MemoryCluster
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.ports import BookPort
from bokilib.testing import crash_everywhere, while_alive
from bokirsm import App, Event, Host, Machine, Ref, Register, State, Volatile
from bokirsm.machine.declaration import Declaration
from bokirsm.machine.handling import Handled
from bokirsm.model.events import PICKER, Commit, messages_of
from bokirsm.testing import Exhaustive, Program, Run, TestRsm
from bokirsm.testing.story import Story, short
from bokirsm.testing.strategies import Decision
from libs.tests.oracles.small_rsm import (
    Class,
    Create,
    Equal,
    Expr,
    If,
    Let,
    Load,
    Memory,
    Plus,
    Send,
    Sent,
    SetMemory,
    SmallProgram,
    Star,
    Statement,
    Store,
    Trace,
    Value,
    Var,
    trace_of,
    traces,
)
from libs.tests.rsm.test_faults import surely
from libs.tests.rsm.traces import records_of

SINK = Class((), (), ())
FORWARD = Class((), (), (Send("sink", "got", Var("payload")),))
SENDER = Class((), (), (Send(Var("payload"), "hello", 1), Send(Var("payload"), "hello", 2)))


def small(classes: dict[str, Class], machines: dict[str, str], *events: tuple[str, str, Value]) -> SmallProgram:
    return SmallProgram({**classes, "Sink": SINK}, {**machines, "sink": "Sink"}, events)


PROGRAMS: dict[str, SmallProgram] = {
    "one after the other": small({"F": FORWARD}, {"a": "F", "b": "F"}, ("a", "go", 1), ("a", "go", 2), ("b", "go", 3)),
    "two senders": small(
        {
            "One": Class((), (), (Send("f", "n", Var("payload")),)),
            "F": Class(
                (("sum", 0),),
                (),
                (Store("sum", Plus(Plus(Load("sum"), Load("sum")), Var("payload"))), Send("sink", "sum", Load("sum"))),
            ),
        },
        {"a": "One", "b": "One", "f": "F"},
        ("a", "go", 1),
        ("a", "go", 2),
        ("b", "go", 4),
    ),
    "choices": small(
        {
            "C": Class(
                (("last", 7),),
                (),
                (
                    Let("x", Star(2)),
                    If(Equal(Var("x"), Load("last")), (Send("sink", "again", Var("x")),)),
                    Store("last", Var("x")),
                ),
            )
        },
        {"a": "C"},
        ("a", "go", 0),
        ("a", "go", 0),
        ("a", "go", 0),
    ),
    "children": small(
        {
            "Parent": Class(
                (("sum", 0),),
                (),
                (
                    If(
                        Equal(Var("kind"), "go"),
                        (Create("c", "Child"), Send(Var("c"), "ask", Var("self"))),
                        (Store("sum", Plus(Load("sum"), Var("payload"))), Send("sink", "sum", Load("sum"))),
                    ),
                ),
            ),
            "Child": Class((), (), (Send(Var("payload"), "answer", Star(2)),)),
        },
        {"p": "Parent"},
        ("p", "go", 0),
        ("p", "go", 0),
    ),
    "harmless memory": small(
        {
            "M": Class(
                (("count", 0),),
                (("seen", 0),),
                (
                    SetMemory("seen", Plus(Memory("seen"), 1)),
                    Store("count", Plus(Load("count"), 1)),
                    Send("sink", "n", Load("count")),
                ),
            )
        },
        {"a": "M", "b": "M"},
        ("a", "go", 0),
        ("a", "go", 0),
        ("b", "go", 0),
    ),
}
LEAK = small(
    {"M": Class((), (("seen", 0),), (SetMemory("seen", Plus(Memory("seen"), 1)), Send("sink", "n", Memory("seen"))))},
    {"a": "M"},
    ("a", "go", 0),
    ("a", "go", 0),
    ("a", "go", 0),
)
CROSSING = small(
    {
        "A": Class((), (), (Send("x", "n", Var("payload")), Send("y", "n", Var("payload")))),
        "B": Class((), (), (Send("y", "n", Var("payload")), Send("x", "n", Var("payload")))),
        "F": FORWARD,
    },
    {"a": "A", "b": "B", "x": "F", "y": "F"},
    ("a", "go", 1),
    ("b", "go", 2),
)
"""Two machines that send to two machines, in turn: the rules of the paper have a run in which each gets the other's event first."""


# -- the same programs as machines


class Msg(Event):
    src: str
    kind: str
    payload: int | str


class Small(Machine[Msg]):
    """A machine whose handler is a statement of the language."""

    fields: Register[dict[str, int | str]] = Register({})
    memory: Volatile[dict[str, Value]] = Volatile(dict)
    code = SINK
    run = State(start=True)

    @run.on(Msg)
    def handle(self, e: Msg) -> None:
        env: dict[str, Value] = {"self": str(self.me), "src": e.src, "kind": e.kind, "payload": e.payload}
        self.fields = {**dict(self.code.fields), **self.fields}
        self.memory = {**dict(self.code.memory), **self.memory}
        self.execute(self.code.handler, env)

    def execute(self, statements: tuple[Statement, ...], env: dict[str, Value]) -> None:
        for one in statements:
            if isinstance(one, Let):
                env[one.name] = self.value(one.value, env)
            elif isinstance(one, Store):
                self.fields[one.field] = self.value(one.value, env)
            elif isinstance(one, SetMemory):
                self.memory[one.field] = self.value(one.value, env)
            elif isinstance(one, If):
                self.execute(one.then if self.value(one.condition, env) else one.other, env)
            elif isinstance(one, Create):
                env[one.name] = str(self.create(CLASSES[one.cls]))
            else:
                to = str(self.value(one.to, env))
                ref = Ref.parse(to) if "/" in to else Ref(self.me.group, 0, to)
                self.send(ref, Msg(str(self.me), one.kind, self.value(one.payload, env)))

    def value(self, expr: Expr, env: dict[str, Value]) -> Value:
        if isinstance(expr, Var):
            return env[expr.name]
        if isinstance(expr, Load):
            return self.fields[expr.field]
        if isinstance(expr, Memory):
            return self.memory[expr.field]
        if isinstance(expr, Star):
            return self.random.below(expr.bound)
        if isinstance(expr, Plus):
            return int(self.value(expr.left, env)) + int(self.value(expr.right, env))
        if isinstance(expr, Equal):
            return int(self.value(expr.left, env) == self.value(expr.right, env))
        return expr


CLASSES: dict[str, type[Machine[Msg]]] = {}
NEAR: Ref[Any] = Ref("s", 0, "near")


def machines_of(program: SmallProgram) -> Program:
    CLASSES.clear()
    for name, one in program.classes.items():
        CLASSES[name] = type(name, (Small,), {"code": one, "__slots__": ()})

    async def main(rsm: TestRsm) -> None:
        made = [(id, cls) for id, cls in program.machines.items() if id != "sink"]  # what the sink gets is in no inbox
        refs = {id: await rsm.create(CLASSES[cls], key=id, near=NEAR) for id, cls in made}
        await rsm.send_many([(refs[to], Msg("env", kind, payload)) for to, kind, payload in program.events])

    return Program(App("s", list(CLASSES.values())), main, leaks=False)


class Traces(Story):
    """The trace of a run instead of its story."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, tuple[Sent, ...]] = {}

    def commits(self, handled: Handled, declaration: Declaration | None) -> None:
        self.add(handled.commit)

    def add(self, commit: Commit) -> None:
        found = [Sent(commit.id, _id(one.to), "", one.kind) for one in commit.creates]
        for one in commit.sends:
            event = Small.declaration.events["Msg"].decode(one.body)
            payload = _id(event.payload) if isinstance(event.payload, str) else event.payload
            found.append(Sent(commit.id, _id(one.to), event.kind, payload))
        self.of[_id(commit.id)] = (*self.of.get(_id(commit.id), ()), *found)


def _id(machine: str) -> str:
    """Return a machine as the rules name it: of a child the number alone, without the life of its parent."""
    return re.sub(r"#\d+\.", "#", short(machine))


class AfterBegin(Exhaustive):
    """DFS from the first events on: each machine is created and enters its state before."""

    def __init__(self, machines: int, *, crashes: bool) -> None:
        super().__init__()
        self.first = 2 * machines + 1
        self.crashes = crashes

    def next(self, keys: Sequence[str], step: int) -> int:
        return super().next(keys, step) if step >= self.first else 0

    def crash(self) -> bool:
        return self.crashes and super().crash()


def traces_of(program: SmallProgram, *, crashes: bool) -> frozenset[Trace]:
    """Return the traces of all runs of the tester."""
    strategy = AfterBegin(len(program.machines) - 1, crashes=crashes)
    found, subject = set[Trace](), machines_of(program)
    while not strategy.complete:
        strategy.begin(0)
        told = Traces()
        run = Run(subject, strategy, story=told)
        run.go()
        assert run.quiet and (crashes or Decision("crash", 1) not in run.decisions)
        found.add(trace_of(iter(told.of.items())))
        strategy.ended()
    return frozenset(found)


@pytest.mark.parametrize("name", PROGRAMS)
def test_crashes_add_no_trace_and_the_tester_finds_all_there_are(name: str) -> None:
    program = PROGRAMS[name]
    expected = traces(program, crashes=False, records=True)
    assert expected and traces(program, crashes=True, records=True) == expected, "Theorem 3.1"
    assert traces_of(program, crashes=False) == expected
    assert traces_of(program, crashes=True) == expected
    assert traces(program, crashes=False, records=False) >= expected, "a record is a run of the paper's rules"


@pytest.mark.parametrize("name", ["choices", "harmless memory"])
def test_where_a_handler_sends_one_event_records_are_the_rules_of_the_paper(name: str) -> None:
    program = PROGRAMS[name]
    literal = traces(program, crashes=False, records=False)
    assert literal == traces(program, crashes=True, records=False) == traces(program, crashes=False, records=True)


def test_memory_with_an_effect_adds_traces_and_the_tester_finds_those_too() -> None:
    steady, crashing = (traces(LEAK, crashes=one, records=True) for one in (False, True))
    assert len(steady) == 1 and len(crashing) == 4 and steady < crashing
    assert traces_of(LEAK, crashes=False) == steady and traces_of(LEAK, crashes=True) == crashing


def test_a_record_has_no_run_in_which_its_events_arrive_apart() -> None:
    apart, together = (traces(CROSSING, crashes=False, records=one) for one in (False, True))
    assert together < apart
    assert traces_of(CROSSING, crashes=False) == together


async def begin(host: Host, program: SmallProgram) -> None:
    """Create the machines and send the first events, once, however often this is called."""
    made = [(id, cls) for id, cls in program.machines.items() if id != "sink"]
    refs = {id: await surely(partial(host.create, CLASSES[cls], key=id, near=NEAR)) for id, cls in made}
    for number, (to, kind, payload) in enumerate(program.events):
        await surely(partial(host.send, refs[to], Msg("env", kind, payload), dedup_id=f"event-{number}"))


async def trace_in(book: Book) -> Trace:
    """Return the trace of the machines of a book."""
    told = Traces()
    async for seqnum, envelope in records_of(book):
        for event in PICKER.of(seqnum, envelope):
            if isinstance(event, Commit):
                told.add(event)
    return trace_of(iter(told.of.items()))


async def _waiting(book: Book) -> int:
    """Return the number of messages that no machine has taken. Those with an id count once."""
    sent, taken = set[object](), 0
    async for seqnum, envelope in records_of(book):
        events = PICKER.of(seqnum, envelope)
        sent |= {(one.to, one.dedup) if one.dedup else (seqnum, number) for number, one in messages_of(events)}
        taken += sum(len(one.took) for one in events if isinstance(one, Commit))
    return len(sent) - taken


ON_HOSTS = {**{name: one for name, one in PROGRAMS.items() if name != "children"}, "crossing": CROSSING}
"""Programs whose machines get their first events from programs, and all others from machines, so that the first may come one by one."""


@pytest.mark.parametrize("name", ON_HOSTS)
async def test_the_trace_of_a_host_is_among_them(name: str, cluster: MemoryCluster) -> None:
    program = ON_HOSTS[name]
    app, book = machines_of(program).app, (await cluster.connect()).book("b")
    async with Host(app, book, name="host", stuck_after_s=None) as host:
        await begin(host, program)
        while await _waiting(book):
            await let_pass(0.01)
    assert await trace_in(book) in traces(program, crashes=False, records=True)


NIGHTLY = [pytest.param(name, marks=pytest.mark.nightly) for name in ("two senders", "choices", "crossing")]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["harmless memory", *NIGHTLY])
def test_the_trace_of_hosts_that_die_at_any_operation_is_among_them(name: str) -> None:
    program = ON_HOSTS[name]
    app, expected = machines_of(program).app, traces(program, crashes=False, records=True)

    async def run(book: BookPort) -> None:
        async with Host(app, book, name="host", lease_s=1.0, stuck_after_s=None) as host:
            await begin(host, program)
            await let_pass(2)  # the lease of a host that died, and what its machines had to do

    async def check(book: Book) -> None:
        assert not await _waiting(book) and await trace_in(book) in expected

    @in_virtual_time
    async def explore() -> None:
        alive = lambda book: while_alive(book, run(book))  # noqa: E731
        explored = await crash_everywhere(alive, alive, check, clock=LoopClock())
        assert explored.operations > 10 and explored.runs > 20

    explore()
