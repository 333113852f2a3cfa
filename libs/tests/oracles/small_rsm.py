"""The core language of Reliable State Machines (Mukherjee et al., §3) as a program: it finds all traces of a tiny program.

Syntax (Figure 2) is data: statements and expressions below. A configuration has, of each machine, what is stored (inbox, outbox, persistent
fields, trace) and what is not (volatile fields, the handler that runs). `traces` follows each rule from each configuration:

| rule | here |
|---|---|
| G-start | a machine at rest, with an empty outbox, takes the head of its inbox into a handler; the event stays in the inbox |
| G-local | the handler makes one step (Figure 4); `Star` makes it as often as there are values |
| G-commit | the handler has ended: event, fields and outbox change at once |
| G-create, G-send | the head of the outbox becomes a machine, or is in the inbox of its target; it joins the trace of the sender |
| G-reset | a machine loses what is not stored |

`records=True` takes G-commit and all that leaves the outbox then as one step: so does a log, in which a commit is one record, and the P#
backend of the paper (§4.4). The trace of a machine is what it created and sent, in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

Value: TypeAlias = "int | str"


@dataclass(frozen=True)
class Var:
    """A local variable; `src`, `kind`, `payload` and `self` are those of the event and its machine."""

    name: str


@dataclass(frozen=True)
class Load:
    """A persistent field."""

    field: str


@dataclass(frozen=True)
class Memory:
    """A volatile field."""

    field: str


@dataclass(frozen=True)
class Plus:
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Equal:
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Star:
    """Any number below a bound."""

    bound: int


Expr: TypeAlias = "int | str | Var | Load | Memory | Plus | Equal | Star"


@dataclass(frozen=True)
class Let:
    name: str
    value: Expr


@dataclass(frozen=True)
class Store:
    field: str
    value: Expr


@dataclass(frozen=True)
class SetMemory:
    field: str
    value: Expr


@dataclass(frozen=True)
class If:
    condition: Expr
    then: tuple[Statement, ...]
    other: tuple[Statement, ...] = ()


@dataclass(frozen=True)
class Create:
    """Create a machine of a class, and bind its id to a variable."""

    name: str
    cls: str


@dataclass(frozen=True)
class Send:
    to: Expr
    kind: str
    payload: Expr


Statement: TypeAlias = "Let | Store | SetMemory | If | Create | Send"


@dataclass(frozen=True)
class Class:
    """A class: its fields with their first values, and the statements of its handler."""

    fields: tuple[tuple[str, Value], ...]
    memory: tuple[tuple[str, Value], ...]
    handler: tuple[Statement, ...]


@dataclass(frozen=True)
class Sent:
    """An event on its way, or a creation: `kind` is "" then, and `payload` the class."""

    src: str
    to: str
    kind: str
    payload: Value


@dataclass(frozen=True)
class Handler:
    """A handler that runs: the statements that are left, variables, fields and what it sent."""

    rest: tuple[Statement, ...]
    env: tuple[tuple[str, Value], ...]
    fields: tuple[tuple[str, Value], ...]
    children: int
    out: tuple[Sent, ...] = ()


@dataclass(frozen=True)
class Machine:
    """A machine: stored are all but `memory` and `handler`."""

    cls: str
    fields: tuple[tuple[str, Value], ...]
    memory: tuple[tuple[str, Value], ...]
    inbox: tuple[Sent, ...] = ()
    outbox: tuple[Sent, ...] = ()
    children: int = 0
    trace: tuple[Sent, ...] = ()
    handler: Handler | None = None


@dataclass(frozen=True)
class SmallProgram:
    """Classes, the machines that there are at first, by id, and the first events."""

    classes: dict[str, Class]
    machines: dict[str, str]
    events: tuple[tuple[str, str, Value], ...]


Config: TypeAlias = "tuple[tuple[str, Machine], ...]"
Trace: TypeAlias = "tuple[tuple[str, tuple[tuple[str, str, Value], ...]], ...]"


def traces(program: SmallProgram, *, crashes: bool, records: bool) -> frozenset[Trace]:
    """Return the traces of all runs that have come to an end."""
    first = _first(program)
    todo, seen, found = [first], {first}, set[Trace]()
    while todo:
        config = todo.pop()
        following = list(_steps(program, dict(config), records=records))
        if not following:
            found.add(trace_of((id, machine.trace) for id, machine in config))
        if crashes:
            following += list(_resets(program, dict(config)))
        for one in following:
            if one not in seen:
                seen.add(one)
                todo.append(one)
    return frozenset(found)


def trace_of(machines: Iterator[tuple[str, tuple[Sent, ...]]]) -> Trace:
    """Return the trace of a run: of each machine that did something, what it created and sent."""
    return tuple(
        sorted((id, tuple((one.to, one.kind, one.payload) for one in trace)) for id, trace in machines if trace)
    )


def child(parent: str, number: int) -> str:
    """Return the id of the machine that another one creates."""
    return f"{parent}#{number}"


def _first(program: SmallProgram) -> Config:
    machines = {id: _new(program, cls) for id, cls in program.machines.items()}
    for to, kind, payload in program.events:
        machines[to] = replace(machines[to], inbox=(*machines[to].inbox, Sent("env", to, kind, payload)))
    return _config(machines)


def _config(machines: dict[str, Machine]) -> Config:
    return tuple(sorted(machines.items()))


def _new(program: SmallProgram, cls: str) -> Machine:
    one = program.classes[cls]
    return Machine(cls, one.fields, one.memory)


def _steps(program: SmallProgram, machines: dict[str, Machine], *, records: bool) -> Iterator[Config]:
    for id, machine in machines.items():
        if machine.handler is not None and machine.handler.rest:
            for after in _local(id, machine):
                yield _config({**machines, id: after})
        elif machine.handler is not None:
            committed = {**machines, id: _commit(machine, machine.handler)}
            while records and committed[id].outbox:
                committed = _out(program, committed, id)
            yield _config(committed)
        elif machine.outbox:
            yield _config(_out(program, machines, id))
        elif machine.inbox:
            yield _config({**machines, id: _start(program, id, machine)})


def _resets(program: SmallProgram, machines: dict[str, Machine]) -> Iterator[Config]:
    for id, machine in machines.items():
        yield _config({**machines, id: replace(machine, memory=program.classes[machine.cls].memory, handler=None)})


def _start(program: SmallProgram, id: str, machine: Machine) -> Machine:
    event = machine.inbox[0]
    env = (("self", id), ("src", event.src), ("kind", event.kind), ("payload", event.payload))
    return replace(
        machine, handler=Handler(program.classes[machine.cls].handler, env, machine.fields, machine.children)
    )


def _commit(machine: Machine, handler: Handler) -> Machine:
    return replace(
        machine,
        fields=handler.fields,
        inbox=machine.inbox[1:],
        outbox=handler.out,
        children=handler.children,
        handler=None,
    )


def _out(program: SmallProgram, machines: dict[str, Machine], id: str) -> dict[str, Machine]:
    """Take the head of an outbox: G-create or G-send."""
    sender = machines[id]
    sent = sender.outbox[0]
    after = {**machines, id: replace(sender, outbox=sender.outbox[1:], trace=(*sender.trace, sent))}
    if not sent.kind:
        after[sent.to] = _new(program, str(sent.payload))
    else:
        after[sent.to] = replace(after[sent.to], inbox=(*after[sent.to].inbox, sent))
    return after


def _local(id: str, machine: Machine) -> Iterator[Machine]:
    """Make a step of a handler, in each way that it can be made."""
    handler = machine.handler
    assert handler is not None
    statement, rest = handler.rest[0], handler.rest[1:]
    now = replace(handler, rest=rest)
    if isinstance(statement, Create):
        made = child(id, handler.children + 1)
        out = (*handler.out, Sent(id, made, "", statement.cls))
        env = _with(handler.env, statement.name, made)
        yield replace(machine, handler=replace(now, env=env, out=out, children=handler.children + 1))
        return
    if isinstance(statement, Send):
        for to in _values(statement.to, machine, handler):
            for payload in _values(statement.payload, machine, handler):
                out = (*handler.out, Sent(id, str(to), statement.kind, payload))
                yield replace(machine, handler=replace(now, out=out))
        return
    if isinstance(statement, If):
        for value in _values(statement.condition, machine, handler):
            branch = statement.then if value else statement.other
            yield replace(machine, handler=replace(now, rest=(*branch, *rest)))
        return
    for value in _values(statement.value, machine, handler):
        if isinstance(statement, Let):
            yield replace(machine, handler=replace(now, env=_with(handler.env, statement.name, value)))
        elif isinstance(statement, Store):
            yield replace(machine, handler=replace(now, fields=_with(handler.fields, statement.field, value)))
        else:
            yield replace(machine, handler=now, memory=_with(machine.memory, statement.field, value))


def _with(pairs: tuple[tuple[str, Value], ...], name: str, value: Value) -> tuple[tuple[str, Value], ...]:
    return tuple(sorted({**dict(pairs), name: value}.items()))


def _values(expr: Expr, machine: Machine, handler: Handler) -> Iterator[Value]:
    """Return the values that an expression may have."""
    if isinstance(expr, (int, str)):
        yield expr
    elif isinstance(expr, Var):
        yield dict(handler.env)[expr.name]
    elif isinstance(expr, Load):
        yield dict(handler.fields)[expr.field]
    elif isinstance(expr, Memory):
        yield dict(machine.memory)[expr.field]
    elif isinstance(expr, Star):
        yield from range(expr.bound)
    else:
        for left in _values(expr.left, machine, handler):
            for right in _values(expr.right, machine, handler):
                yield int(left) + int(right) if isinstance(expr, Plus) else int(left == right)
