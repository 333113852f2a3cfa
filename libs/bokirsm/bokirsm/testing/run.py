"""A run of a program: one machine handles one event at a time, and a strategy makes each decision. No clock, no event loop.

It drives the core that a lane drives (`bokirsm.machine.handling`), with the inboxes of a lane (`bokirsm.lane.inboxes`). The runtime is
trusted: a handler is committed at once, and what it sends is in the inboxes then, as records are in the log. So a run decides what differs
from one run of a real program to another:

- the machine, timer or program of the next step; a timer may fire at any step after it was set, those of one machine in the order in which
  they are due;
- choices of handlers, mock machines and programs;
- the loss of a machine's volatile state before a handler, as by a crash or a move.

A handler that fails is a fault at once: a host would try it again, and give up.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

import msgspec

from boki_common.errors import InvalidArgument
from boki_common.interruption import interrupted
from bokirsm.lane.inboxes import Firing, LaneMachine, NextWork
from bokirsm.machine.app import App
from bokirsm.machine.declaration import Declaration, Reaction
from bokirsm.machine.handling import Handled, HandlerFailed, Work, World, handle, skip
from bokirsm.machine.values import Ask, Event, asker_of, encode, name_of
from bokirsm.model.events import Message, Reply
from bokirsm.model.lane_record import InboxMessage
from bokirsm.model.machine_state import MachineState
from bokirsm.model.partition_state import TimerTimes
from bokirsm.testing.choices import RunTokens, StepChoices
from bokirsm.testing.clients import MAIN, Main, TestClient, TestRsm, error_text
from bokirsm.testing.errors import Diverged, Fault
from bokirsm.testing.hashing import Hashes
from bokirsm.testing.leaks import Checked, check_again
from bokirsm.testing.mocks import Answer, Mock
from bokirsm.testing.monitors import Monitor, SeenMachine
from bokirsm.testing.story import Story
from bokirsm.testing.strategies import Decision, Strategy

STEPS: Final = 100_000
"""Steps of a run, at most."""
BEGIN_MS: Final = 1_700_000_000_000
"""The time of the log at the begin of a run. A step takes a millisecond, and a timer has the time pass until it is due."""
TIMER: Final = "!"
"""Stands between a machine and the name of its timer, in keys of decisions."""
REPEATS: Final = 10
"""Times that all machines may have the same state while timers alone are left; then the run ends."""


class Program(NamedTuple):
    """The subject of a test.

    Attributes:
        app: the machines.
        main: the program outside of them, with which a run begins.
        monitors: the classes of monitors.
        mocks: classes of mock machines by key: one of each is created before `main`.
        steps: the most steps of a run.
        leaks: handlers run again, to check that nothing depends on volatile state.
    """

    app: App
    main: Main
    monitors: Sequence[type[Monitor]] = ()
    mocks: Mapping[str, type[Mock[Any]]] = {}
    steps: int = STEPS
    leaks: bool = True


class Reached(NamedTuple):
    """A handler that ran: the stored names of a class, a state and an event."""

    kind: str
    state: str
    event: str


class TestedMachine(LaneMachine):
    """A machine of a run.

    Attributes:
        declaration: of its class; None before its creation.
        found: its next item, or None if it has nothing to handle.
        crashes: the number of times that it lost its volatile state.
    """

    __slots__ = ("crashes", "declaration", "found")

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.declaration: Declaration | None = None
        self.found: NextWork | None = None
        self.crashes = 0

    @property
    def is_mock(self) -> bool:
        """True for a mock machine."""
        return self.declaration is not None and issubclass(self.declaration.cls, Mock)

    def due(self) -> Firing | None:
        """Return the timer that fires next; None if there is none, or it has fired and waits."""
        if self.state is None or not self.state.timers:
            return None
        waiting = {item for item in (*self.inbox, *self.deferred) if isinstance(item, Firing)}
        fires = [Firing(one.name, TimerTimes(one.set_ms, one.due_ms, one.k)) for one in self.state.timers.values()]
        left = [one for one in fires if one not in waiting]
        return min(left, key=lambda one: (one.times.due_ms, one.name)) if left else None


class Run:
    """A run of a program; see the module.

    Invariant: `_ready` has the machines whose `found` is not None, in the order in which they became ready.

    Attributes:
        decisions: those that were made.
        steps: the steps that were made.
        reached: handlers that ran.
        quiet: it ended since nothing was left to handle, not by the bound.
    """

    running: TestClient
    """The program that makes a call."""

    def __init__(self, program: Program, strategy: Strategy, *, story: Story | None = None) -> None:
        self.decisions: Final[list[Decision]] = []
        self.steps = 0
        self.reached: Final[set[Reached]] = set()
        self.quiet = False
        self.choices: Final = StepChoices(self._pick)
        self._program: Final = program
        self._strategy: Final = strategy
        self._story: Final = story
        self._tokens: Final = RunTokens()
        self._now_ms = BEGIN_MS
        self._machines: Final[dict[str, TestedMachine]] = {}
        self._ready: Final[dict[str, TestedMachine]] = {}
        self._timed: Final[dict[str, TestedMachine]] = {}
        self._clients: Final[dict[str, TestClient]] = {}
        self._mocks: Final[dict[str, str]] = {}
        """Mock machines that were made before the program began, by key: a plugin's outputs go to that of its stored name."""
        self._names: Final[dict[str, int]] = {}
        """The number of programs by the name of their function."""
        self._kinds: Final = dict(program.app.machines)
        self._hashes: Final = Hashes()
        self._seen_states: Final[dict[str, int]] = {}
        """The number of times that timers alone were left, by the state of all machines."""
        self._monitors: Final = [make() for make in program.monitors]
        self._observed: Final = {name_of(event) for one in self._monitors for event in one.observes}
        self._announced: Final[list[Event] | None] = [] if _with(self._monitors, "announced") else None
        self._senders: Final = _with(self._monitors, "sent")
        self._takers: Final = _with(self._monitors, "taken")
        self._committers: Final = _with(self._monitors, "committed")
        for one in self._monitors:
            one.watch(self._seen)

    # -- one run

    def go(self) -> None:
        """Run the program to its end, or to the bound.

        Raises:
            Fault: the run found a fault.
            Diverged: the program does not take the decisions of a witness.
        """
        with self._hashes.instead():
            try:
                self._begin()
                while self.steps < self._program.steps and self._step():
                    pass
                self._end()
            finally:
                for one in self._clients.values():
                    one.close()

    def _begin(self) -> None:
        rsm = TestRsm(self)
        for key, mock in self._program.mocks.items():
            self._mocks[key] = str(rsm.created(mock, key=key))
        self.start(self._program.main(rsm))

    def _step(self) -> bool:
        """Make the next step. Return False if there is none."""
        options = [*self._ready, *(name for name, client in self._clients.items() if not client.waits)]
        fires = self._fires() if self._timed else {}
        if not options and (not fires or self._repeats()):
            self.quiet = True
            return False
        options += fires
        key = options[self._strategy.next(options, self.steps)]
        self.decisions.append(Decision("run", key))
        self.steps += 1
        self._now_ms += 1
        for one in self._monitors:
            one.step = self.steps
        if key in self._clients:
            self._run_client(self._clients[key])
        elif key in self._ready:
            self._handle_next(self._ready[key])
        else:
            self._fire(fires[key])
        self._check_heat()
        return True

    def _fires(self) -> dict[str, TestedMachine]:
        """Return the machines whose next timer may fire, by its key."""
        found = {}
        for text, machine in self._timed.items():
            firing = machine.due()
            if firing is not None:
                found[f"{text}{TIMER}{firing.name}"] = machine
        return found

    def _repeats(self) -> bool:
        """Return whether timers alone are left, which change nothing, and nothing waits: as with a machine that looks each second."""
        if any(one.heat for one in self._monitors) or self._clients:
            return False
        states = [
            (
                text,
                one.state.state,
                list(one.state.registers.items()),
                [(name, list(rows.items())) for name, rows in one.state.tables.items()],
            )
            for text, one in self._machines.items()
            if one.state is not None
        ]
        count = self._seen_states[repr(states)] = self._seen_states.get(repr(states), 0) + 1
        return count > REPEATS

    def _end(self) -> None:
        """Check what has to be so at the end."""
        stuck = [one for one in self._clients.values() if one.waits]
        if self.quiet and stuck:
            one = stuck[0]
            raise Fault(
                "stuck", one.name, f"{one.name} waits for the answer to {one.waits}, and nothing is left to handle"
            )
        for monitor in self._monitors:
            if monitor.heat and self.quiet:
                raise Fault(
                    "liveness", type(monitor).__name__, f"{type(monitor).__name__} is hot at the end: {monitor.heat}"
                )
            if self.quiet:
                self._tell(monitor, monitor.ended)

    def _check_heat(self) -> None:
        fair_from = self._strategy.fair_from
        if fair_from is None:
            return
        for one in self._monitors:
            if one.heat and self.steps - max(one.hot_since, fair_from) > self._program.steps // 2:
                kind = type(one).__name__
                raise Fault("liveness", kind, f"{kind} is hot for {self.steps - one.hot_since} steps: {one.heat}")

    # -- programs

    @property
    def group(self) -> str:
        """The name of the app."""
        return self._program.app.name

    def start(self, main: Coroutine[Any, Any, Any]) -> None:
        """Add a program, which has the name of its function."""
        name = getattr(main, "__name__", "program") if self._names else MAIN
        count = self._names[name] = self._names.get(name, 0) + 1
        name = name if count == 1 else f"{name}-{count}"
        client = self._clients[name] = TestClient(name, main)
        client.advance()
        self._forget(client)

    def pick(self, bound: int) -> int:
        """Return a number below a bound, that the strategy chooses for a program."""
        if bound < 1:
            raise InvalidArgument(f"expected one item at least to choose from, found {bound}")
        return self._pick(bound)

    def _pick(self, bound: int) -> int:
        if bound == 1:
            return 0
        found = self._strategy.pick(bound)
        self.decisions.append(Decision("pick", found))
        return found

    def _run_client(self, client: TestClient) -> None:
        self.running = client
        if self._story is not None:
            self._story.client(self.steps, client.name)
        client.step()
        self._forget(client)

    def _forget(self, client: TestClient) -> None:
        if client.ended:
            self._clients.pop(client.name, None)

    # -- messages

    def deliver(self, sent: Message) -> None:
        """Put a message into the inbox of its machine."""
        machine = self._machines.get(sent.to)
        if machine is None:
            machine = self._machines[sent.to] = TestedMachine(sent.to)
        if sent.kind and machine.declaration is None:
            self._declare(machine, sent.kind)
        if self._senders and sent.event in self._observed:
            self._notify(self._senders, "sent", sent.event, sent.body, machine)
        if self._story is not None:
            self._story.sent(sent)
        machine.inbox.append(InboxMessage(sent, 1, 0))
        if machine.found is None:
            self._find(machine)

    def declared(self, cls: type[Any]) -> Declaration:
        """Return the declaration of a class of the app, or of a mock machine, whose instances may be created then.

        Raises:
            InvalidArgument: it is a class of machines of another app, or a mock machine with the name of another class.
        """
        if not issubclass(cls, Mock):
            return self._program.app.declaration(cls)
        found = self._kinds.setdefault(cls.declaration.kind, cls.declaration)
        if found is not cls.declaration:
            raise InvalidArgument(f"expected a mock machine with a name of its own, found {found.kind} for two classes")
        return found

    def _declare(self, machine: TestedMachine, kind: str) -> None:
        declaration = self._kinds.get(kind)
        if declaration is None:
            raise Fault(
                "handler", kind, f"expected a class of app {self.group!r} to be created, found {kind}: add it to App(…)"
            )
        machine.declaration = declaration

    def _find(self, machine: TestedMachine) -> None:
        """Find the next item of a machine; drop those that it takes without a handler, since it does not exist or has halted."""
        while True:
            state = machine.state
            living = state is not None and not state.halted
            found = machine.next_work(machine.declaration if living else None)
            if found is None or living is not found.work.creates:
                break
            machine.took(changed_state=False)
            self._missing(machine, found)
        machine.found = found
        if found is None:
            self._ready.pop(machine.text, None)
        else:
            self._ready[machine.text] = machine

    def _missing(self, machine: TestedMachine, found: NextWork) -> None:
        """Answer a question that is dropped."""
        kinds = (one.accepts.get(found.work.event) for one in self._kinds.values())
        if any(kind is not None and issubclass(kind, Ask) for kind in kinds):
            asker = asker_of(found.work.body)
            if asker:
                self._answer(Reply(asker, "missing", encode(machine.text)))

    def _answer(self, reply: Reply) -> None:
        """Bring an answer to a program or a mock machine."""
        asker, _, number = reply.asker.rpartition("/")
        if asker in self._machines:
            event = Answer(int(number), reply.outcome, msgspec.msgpack.decode(reply.body))
            self.deliver(Message(asker, name_of(Answer), encode(event)))
        elif asker in self._clients:
            client = self._clients[asker]
            client.answered(reply)
            self._forget(client)

    # -- handlers

    def _fire(self, machine: TestedMachine) -> None:
        """Have the next timer of a machine fire, and the machine handle it, or what its state does not defer."""
        firing = machine.due()
        assert firing is not None, "only timers that may fire are options"
        self._now_ms = max(self._now_ms, firing.times.due_ms)
        machine.found = None
        machine.inbox.appendleft(firing)
        self._find(machine)
        if machine.found is not None and machine.found.item is firing:
            self._handle_next(machine)

    def _handle_next(self, machine: TestedMachine) -> None:
        found, declaration = machine.found, machine.declaration
        assert found is not None and declaration is not None
        state = machine.state if machine.state is not None else MachineState(declaration.kind)
        if found.reaction is Reaction.IGNORE:
            if self._story is not None:
                self._story.handles(self.steps, machine.ref, declaration, state, found.work)
            handled = Handled(skip(state, found.work, self._now_ms))
        else:
            if machine.volatile and not machine.is_mock:
                self._may_crash(machine)
            handled = self._handled(machine, declaration, state, found.work)
        machine.state = state
        self._apply(machine, state, found, handled)

    def _may_crash(self, machine: TestedMachine) -> None:
        crashes = self._strategy.crash()
        self.decisions.append(Decision("crash", int(crashes)))
        if crashes:
            machine.volatile = {}
            machine.crashes += 1
            if self._story is not None:
                self._story.crashed(machine.text)

    def _handled(self, machine: TestedMachine, declaration: Declaration, state: MachineState, work: Work) -> Handled:
        self.choices.begin()
        plugins, choices = self._program.app.plugins, self.choices
        world = World(machine.ref, self._now_ms, self._tokens, plugins, choices=choices, announced=self._announced)
        self._hashes.process = machine.crashes
        checks = self._program.leaks and not machine.is_mock and self._strategy.check()
        checked = Checked(declaration, state, machine.volatile, work, world, self._tokens.count) if checks else None
        if self._story is not None:
            self._story.handles(self.steps, machine.ref, declaration, state, work)
        try:
            handled = handle(declaration, state, machine.volatile, work, world)
        except HandlerFailed as failed:
            _raise_failure(declaration, state, work, failed)
        if checked is not None:
            self._check_again(checked, handled)
        self.reached.add(Reached(declaration.kind, state.state, work.event))
        return handled

    def _check_again(self, checked: Checked, handled: Handled) -> None:
        count = self._tokens.count
        announced = len(self._announced) if self._announced is not None else 0
        try:
            check_again(checked, handled, self.choices, self._tokens, self._hashes)
        finally:
            self._tokens.count = count
            if self._announced is not None:
                del self._announced[announced:]

    def _apply(self, machine: TestedMachine, state: MachineState, found: NextWork, handled: Handled) -> None:
        before, commit = state.state, handled.commit
        state.apply(commit)
        machine.took(changed_state=commit.halted or state.state != before)
        machine.found = None
        self._ready.pop(machine.text, None)
        if self._story is not None:
            self._story.commits(handled, machine.declaration)
        if state.timers:
            self._timed[machine.text] = machine
        else:
            self._timed.pop(machine.text, None)
        if found.reaction is not Reaction.IGNORE:
            self._tell_takers(machine, found.work)
        if self._announced:
            self._announce(machine)
        self._send(handled)
        self._find(machine)
        for reply in commit.replies:
            self._answer(reply)
        self._tell_committers(machine, state)

    def _send(self, handled: Handled) -> None:
        """Bring what a handler created and sent to inboxes, and its outputs to the mock machines of their plugins."""
        for sent in handled.commit.creates:
            self.deliver(sent)
        for sent in (*handled.commit.sends, *handled.loose):
            self.deliver(sent)
        for output in handled.beside.outputs:
            if output.plugin in self._mocks:  # else no mock machine stands for the plugin
                self.deliver(Message(self._mocks[output.plugin], output.event, output.body))

    # -- monitors

    def _seen(self) -> Iterator[SeenMachine]:
        for one in self._machines.values():
            if one.state is not None and one.state.k and one.declaration is not None:
                yield SeenMachine(one.ref, one.declaration, one.state)

    def _notify(
        self, monitors: Sequence[Monitor], method: str, event: str, body: bytes, machine: TestedMachine
    ) -> None:
        """Tell monitors that observe an event about it."""
        codec = machine.declaration.events.get(event) if machine.declaration is not None else None
        if codec is None:
            return
        value = codec.decode(body)
        for monitor in monitors:
            if isinstance(value, monitor.observes):
                self._tell(monitor, getattr(monitor, method), value, machine.ref)

    def _tell_takers(self, machine: TestedMachine, work: Work) -> None:
        """Tell monitors that a machine took an event."""
        if self._takers and work.event in self._observed:
            self._notify(self._takers, "taken", work.event, work.body, machine)

    def _tell_committers(self, machine: TestedMachine, state: MachineState) -> None:
        """Tell monitors that a machine, which is no mock machine, has a new state."""
        if self._committers and machine.declaration is not None and not machine.is_mock:
            seen = SeenMachine(machine.ref, machine.declaration, state)
            for monitor in self._committers:
                self._tell(monitor, monitor.committed, seen)

    def _announce(self, machine: TestedMachine) -> None:
        assert self._announced is not None
        events = list(self._announced)
        self._announced.clear()
        for event in events:
            for monitor in self._monitors:
                if isinstance(event, monitor.observes):
                    self._tell(monitor, monitor.announced, event, machine.ref)

    def _tell(self, monitor: Monitor, method: Callable[..., None], *values: Any) -> None:
        try:
            method(*values)
        except Exception as error:
            name = type(monitor).__name__
            raise Fault(
                "monitor", f"{name}.{method.__name__}", f"{name}.{method.__name__}: {error_text(error)}"
            ) from error


def _raise_failure(declaration: Declaration, state: MachineState, work: Work, failed: HandlerFailed) -> NoReturn:
    """Raise the fault of a handler that failed; an interruption, or what the tester itself raised in the handler, as it is."""
    cause = failed.__cause__
    if cause is not None and interrupted(cause):
        raise cause from None
    if isinstance(cause, (Diverged, Fault)):
        raise cause from None
    kind, event = declaration.cls.__name__, work.event or "its creation"
    text = f"{kind} failed at {event} in state {state.state or declaration.start.name!r}: {failed}"
    place = f"{kind} {state.state} {event} {type(cause or failed).__name__}"
    raise Fault("handler", place, text) from (cause or failed)


def _with(monitors: Sequence[Monitor], method: str) -> list[Monitor]:
    """Return the monitors that have a method of their own."""
    return [one for one in monitors if getattr(type(one), method) is not getattr(Monitor, method)]
