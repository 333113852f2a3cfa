"""The core: the state of a machine and an event in, a commit out. Pure. The lane and tests of programs call it.

    handled = handle(declaration, state, volatile, work, world)     # HandlerFailed: nothing happened
    handled.commit, handled.beside

- Fields are decoded when the handler uses them, and those that changed, in place or by assignment, are in the commit.
- `state` is not changed: the caller applies the commit. After a failed handler the caller drops `volatile`, as after a crash; a refusal
  drops it too.
- `jump`, `first` and `halt` take effect after the handler, in the same commit. Their number is bounded.
- An `async` handler is driven by `send(None)`: if it waits for something outside, it fails.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, NoReturn, Protocol, TypeVar, cast

import msgspec

from boki_common.errors import BokiError
from boki_common.limits import RECORD_TAGS
from bokilib.errors import NotEncodable
from bokilib.records.contribution import ATOMIC_BYTES, BookIdentity, Contribution, check_part
from bokilib.stacks import printable
from bokirsm.errors import (
    CommitTooLarge,
    EndlessHandler,
    HandlerAwaited,
    Refused,
    UndeclaredField,
    UnhandledEvent,
    WrongCall,
)
from bokirsm.machine.declaration import Declaration, Reaction, declaration_of
from bokirsm.machine.fields import Register, Table, TableView, Volatile, changed
from bokirsm.machine.plugins import PluginDeclaration, check_output, plugin_of
from bokirsm.machine.refs import Ref, child
from bokirsm.machine.states import State
from bokirsm.machine.values import Ask, Event, codec_of_event, encode, name_of
from bokirsm.model.events import LIBRARY, Commit, Message, Output, Reply, TimerSet
from bokirsm.model.lane_record import ALONE, Beside, streams_of
from bokirsm.model.machine_state import MachineState

TEXT_CHARS: Final = 2_000
"""Characters of the text of an error or refusal."""
STEPS: Final = 1_000
"""Jumps and `first` events of one handler."""
TIMER_MOST_S: Final = 10 * 366 * 24 * 3_600
COMMIT_BYTES: Final = ATOMIC_BYTES - 16 * 1_024
"""The most bytes of one commit: its record has room for its envelope and the ids of taken messages."""
OF_MACHINES: Final = f"{LIBRARY}."
"""The beginning of the kinds of events of machines."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ABSENT: Final[Any] = object()
_BITS: Final = 53

T = TypeVar("T")


class Tokens(Protocol):
    """The part of the port `Random` that choices need."""

    def token(self, size: int) -> bytes: ...


class Choices:
    """The random choices of a handler. The commit fixes their results: a handler that runs again may choose otherwise."""

    __slots__ = ("_tokens",)

    def __init__(self, tokens: Tokens) -> None:
        self._tokens: Final = tokens

    def below(self, bound: int) -> int:
        """Return a random integer from 0 to below a bound."""
        if bound < 1:
            raise WrongCall(f"expected a bound of at least 1, found {bound}")
        return int.from_bytes(self._tokens.token(8 + (bound.bit_length() + 7) // 8), "big") % bound

    def fraction(self) -> float:
        """Return a random number from 0 to below 1."""
        return int.from_bytes(self._tokens.token(8), "big") % (1 << _BITS) / (1 << _BITS)

    def choice(self, items: Sequence[T]) -> T:
        """Return a random item of a sequence that is not empty."""
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Return the items in a random order."""
        rest = list(items)
        return [rest.pop(self.below(len(rest))) for _ in range(len(rest))]


class World(NamedTuple):
    """The inputs of a handler beside its machine and event.

    Attributes:
        me: the machine.
        now_ms: the log's time.
        tokens: the source of random choices.
        plugins: those of the app, by stored name.
        book: of the machine; None if that is not known.
        choices: makes the choices instead, for a tester that decides them; None for choices by `tokens`.
        announced: gets the events that the handler announced to monitors, with its commit; None if no monitor observes them.
    """

    me: Ref[Any]
    now_ms: int
    tokens: Tokens
    plugins: Mapping[str, PluginDeclaration] = {}
    book: BookIdentity | None = None
    choices: Choices | None = None
    announced: list[Event] | None = None


class Handled(NamedTuple):
    """The effects of a handler.

    Attributes:
        commit: without the ids of the messages that it took.
        beside: what is in the same record.
        loose: events that are sent at most once: those to machines of the same host are in no record.
    """

    commit: Commit
    beside: Beside = ALONE
    loose: tuple[Message, ...] = ()


class Work(NamedTuple):
    """The next event of a machine.

    Attributes:
        event: the stored name of the event; "" for a creation without a first event.
        body: the encoded event.
        creates: this is the machine's creation, with its first event.
        timer: the name of the timer that fired, or "".
        life: of the creation of a machine with a key: the seqnum of its record; else 0.
    """

    event: str
    body: bytes = b""
    creates: bool = False
    timer: str = ""
    life: int = 0


class HandlerFailed(BokiError):
    """A handler raised an error, which is the cause. Nothing that it did takes effect."""


def reaction(declaration: Declaration, state: MachineState, work: Work) -> Reaction:
    """Return how a machine reacts to its next work, without handling it."""
    if work.creates or state.halted:
        return Reaction.HANDLE
    return declaration.reaction(state.state, work.event)


def handle(
    declaration: Declaration, state: MachineState, volatile: dict[str, Any], work: Work, world: World
) -> Handled:
    """Run the handler of an event, and those that follow from it.

    Args:
        declaration: of the machine's class.
        state: of the machine; not changed.
        volatile: its volatile fields, by stored name; changed, and empty after a refusal.
        work: the event, which the state of the machine does not defer.
        world: what the handler takes from outside.

    Raises:
        HandlerFailed: the handler raised an error.
    """
    handling = Handling(declaration, state, volatile, world)
    try:
        return handling.run(work)
    except Refused as refused:
        volatile.clear()  # the handler may have changed its values, and nothing of that counts
        try:
            return Handled(handling.refused(work, refused))
        except NotEncodable as error:
            raise HandlerFailed(f"{type(error).__name__}: {error_text(error)}") from error
    except HandlerFailed:
        raise
    except BaseException as error:  # `sys.exit()` in a handler ends no host
        raise HandlerFailed(f"{type(error).__name__}: {error_text(error)}") from error


def error_text(error: BaseException) -> str:
    """Return the text of an error: bounded and printable for every error that users raise."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an error of users that cannot be shown
        text = "its text cannot be made"
    return printable(text, TEXT_CHARS)


def skip(state: MachineState, work: Work, now_ms: int) -> Commit:
    """Return the commit that drops an event without handling it."""
    ended = _fired(state, work, max(now_ms, state.at_ms))
    return Commit("", state.k + 1, max(now_ms, state.at_ms), timers=ended)


def _fired(state: MachineState, work: Work, now_ms: int) -> tuple[TimerSet, ...]:
    """Return what becomes of the timer that fired: it is set again, or removed."""
    if not work.timer:
        return ()
    timer = state.timers[work.timer]
    if not timer.every_ms:
        return (TimerSet(timer.name, state.k + 1),)
    return (msgspec.structs.replace(timer, k=state.k + 1, set_ms=now_ms, due_ms=now_ms + timer.every_ms),)


class Handling:
    """A machine while one of its handlers runs; see the module."""

    def __init__(self, declaration: Declaration, state: MachineState, volatile: dict[str, Any], world: World) -> None:
        self.me: Final = world.me
        self.choices: Final = world.choices or Choices(world.tokens)
        self._monitored: Final = world.announced
        self._announced: Final[list[Event]] = []
        self._tokens: Final = world.tokens
        self._plugins: Final = world.plugins
        self._book: Final = world.book
        self._declaration: Final = declaration
        self._before: Final = state
        self._at_ms: Final = max(world.now_ms, state.at_ms)
        self._volatile: Final = volatile
        self._registers: Final[dict[str, Any]] = {}
        self._assigned: Final[set[str]] = set()
        self._tables: Final[dict[str, TableView[Any, Any]]] = {}
        self._at = state.state
        self._next: State | None = None
        self._firsts: Final[deque[Event]] = deque()
        self._timers: Final[dict[str, TimerSet]] = {}
        self._creates: Final[list[Message]] = []
        self._sends: Final[list[Message]] = []
        self._loose: Final[list[Message]] = []
        self._replies: Final[list[Reply]] = []
        self._outputs: Final[list[Output]] = []
        self._parts: Final[list[Contribution]] = []
        self._halted = False
        self._life = state.life
        self._machine: Final[object] = object.__new__(declaration.cls)
        object.__setattr__(self._machine, "_handling", self)

    # -- running

    def run(self, work: Work) -> Handled:
        """Run the handlers, and return their effects."""
        self._life = work.life or self._before.life
        self._timers.update({timer.name: timer for timer in _fired(self._before, work, self._at_ms)})
        try:
            if work.creates:
                self._enter(self._declaration.start)
            if work.event and not self._halted:
                if work.creates:
                    self._settle()
                self._dispatch(self._event(work))
            self._settle()
        finally:
            object.__setattr__(self._machine, "_handling", None)
        handled = Handled(
            self._commit(creates=work.creates), Beside(tuple(self._outputs), tuple(self._parts)), tuple(self._loose)
        )
        _check_fits(handled)
        if self._monitored is not None:
            self._monitored.extend(self._announced)
        return handled

    def refused(self, work: Work, refused: Refused) -> Commit:
        """Return the commit of a refused question: it is taken and answered, and nothing else happens."""
        event = self._event(work)
        if not isinstance(event, Ask):
            raise HandlerFailed(f"Refused: {error_text(refused)}") from refused
        if work.creates:
            raise HandlerFailed(f"Refused by a machine that is being created: {error_text(refused)}") from refused
        replies = (Reply(event.asker, "refused", encode(error_text(refused))),) if event.asker else ()
        timers = _fired(self._before, work, self._at_ms)
        return Commit(str(self.me), self._before.k + 1, self._at_ms, timers=timers, replies=replies)

    def _event(self, work: Work) -> Event:
        codec = self._declaration.events.get(work.event)
        if codec is None:
            self._unhandled(work.event)
        found: Event = codec.decode(work.body)
        return found

    def _settle(self) -> None:
        """Take the jumps and handle the `first` events that the last handler left."""
        for _ in range(STEPS):
            if self._halted:
                return
            if self._next is not None:
                state, self._next = self._next, None
                self._call(self._declaration.states[self._at].exit_method)
                self._enter(state)
            elif self._firsts:
                self._dispatch(self._firsts.popleft())
            else:
                return
        raise EndlessHandler(
            f"expected at most {STEPS} jumps and first events after a handler, found more: continue by self.send(self.me, …)",
            expected=STEPS,
        )

    def _enter(self, state: State) -> None:
        self._at = state.stored
        self._call(state.entry_method)

    def _dispatch(self, event: Event) -> None:
        name = name_of(type(event))
        found = self._declaration.reaction(self._at, name)
        if found is Reaction.IGNORE:
            return
        if found is not Reaction.HANDLE:
            self._unhandled(name, deferred=found is Reaction.DEFER)
        self._call(self._declaration.handler(self._at, type(event)), event)

    def _unhandled(self, event: str, *, deferred: bool = False) -> NoReturn:
        kind, state = self._declaration.cls.__name__, self._declaration.states[self._at].name
        found = "deferred there, though it has to be handled at once" if deferred else "none of these"
        raise UnhandledEvent(
            f"expected state {state!r} of {kind} to handle {event}, to defer or to ignore it, found {found}: add "
            f"@{state}.on({event}), or State(defer=({event},)), or State(ignore=({event},))",
            machine=kind,
            state=state,
            event=event,
        )

    def _call(self, method: str, *args: Event) -> None:
        if not method:
            return
        result = getattr(self._machine, method)(*args)
        if inspect.iscoroutine(result):
            try:
                result.send(None)
            except StopIteration:
                return
            result.close()
            raise HandlerAwaited(
                f"expected {self._declaration.cls.__name__}.{method} to compute, found that it awaits something outside of its "
                "machine: do IO in a program, and send the machine its result"
            )

    def _commit(self, *, creates: bool) -> Commit:
        registers, keys = {}, {}
        if not self._halted:
            for name, value in self._registers.items():
                field = self._declaration.registers[name]
                before = self._before.registers.get(name, field.default)
                after = changed(value, before, name in self._assigned, field.codec)
                if after is not None:
                    registers[name] = after
            for name, view in self._tables.items():
                if changes := view.changes():
                    keys[name] = changes
        return Commit(
            str(self.me),
            self._before.k + 1,
            self._at_ms,
            kind=self._declaration.kind if creates else "",
            state=self._at if self._at != self._before.state else None,
            registers=registers,
            keys=keys,
            creates=tuple(self._creates),
            sends=tuple(self._sends),
            timers=() if self._halted else tuple(self._timers.values()),
            replies=tuple(self._replies),
            halted=self._halted,
            life=self._life if creates else 0,
        )

    # -- fields

    def register(self, field: Register[Any]) -> Any:
        """Return the value of a register."""
        value = self._registers.get(field.stored, _ABSENT)
        if value is _ABSENT:
            data = self._before.registers.get(field.stored, field.default)
            if data is None:
                raise UndeclaredField(
                    f"expected self.{field.name} to be assigned before it is read, found no value: give it a default, as in "
                    f"{field.name}: Register[…] = Register(0)",
                    machine=self._declaration.cls.__name__,
                    field=field.name,
                )
            value = self._registers[field.stored] = field.codec.decode(data)
        return value

    def set_register(self, field: Register[Any], value: Any) -> None:
        """Assign a register."""
        self._registers[field.stored] = value
        self._assigned.add(field.stored)

    def table(self, field: Table[Any, Any]) -> TableView[Any, Any]:
        """Return the view of a table."""
        view = self._tables.get(field.stored)
        if view is None:
            view = self._tables[field.stored] = TableView(field, self._before.tables.get(field.stored, {}))
        return view

    def volatile(self, field: Volatile[Any]) -> Any:
        """Return the value of a volatile field."""
        if field.stored not in self._volatile:
            self._volatile[field.stored] = field.factory()
        return self._volatile[field.stored]

    def set_volatile(self, field: Volatile[Any], value: Any) -> None:
        """Assign a volatile field."""
        self._volatile[field.stored] = value

    # -- what a handler calls

    @property
    def now(self) -> datetime:
        """The machine's time."""
        return _EPOCH + timedelta(milliseconds=self._at_ms)

    def uuid(self) -> str:
        """Return a new UUID of version 4."""
        number = int.from_bytes(self._tokens.token(16), "big")
        number = number & ~(0xF000 << 64) & ~(0xC000 << 48) | 4 << 76 | 8 << 60
        text = f"{number:032x}"
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

    def send(self, to: Ref[Any], event: object, *, at_most_once: bool = False) -> None:
        """Send an event."""
        if not isinstance(to, Ref):
            raise WrongCall(f"expected a machine to send to, found {to!r:.80}")
        if to.group != self.me.group:
            raise WrongCall(f"expected a machine of group {self.me.group!r} to send to, found one of {to.group!r}")
        (self._loose if at_most_once else self._sends).append(Message(str(to), *_encoded(event)))

    def create(self, cls: type[Any], init: object, near: Ref[Any] | None) -> Ref[Any]:
        """Create a machine."""
        declaration = declaration_of(cls)
        ref = child(self.me, self._before.children + len(self._creates) + 1, near, life=self._life)
        self._creates.append(creation(ref, declaration, init))
        return ref

    def jump(self, state: State) -> None:
        """Go to a state after this handler."""
        if not isinstance(state, State) or self._declaration.states.get(state.stored) is not state:
            raise WrongCall(f"expected a state of {self._declaration.cls.__name__} to jump to, found {state!r:.80}")
        if self._next is not None:
            raise WrongCall(
                f"expected one jump in a handler, found one to {self._next.name!r} and one to {state.name!r}"
            )
        self._next = state

    def first(self, event: object) -> None:
        """Handle an event after this handler."""
        name, body = self._encoded_here(event)
        self._firsts.append(self._declaration.events[name].decode(body))

    def _encoded_here(self, event: object) -> tuple[str, bytes]:
        """Return the stored name and the bytes of an event for this machine."""
        kind = self._declaration.accepts.get(_name_of(event))
        if kind is None:
            self._unhandled(_name_of(event))
        return _encoded(event, kind)

    def reply(self, to: Ask[Any], value: object) -> None:
        """Answer a question."""
        codec = self._declaration.answers.get(type(to))
        if codec is None:
            raise WrongCall(f"expected a question that {self._declaration.cls.__name__} accepts, found {to!r:.80}")
        body = codec.encode(value)
        codec.check(body, value)
        if to.asker:
            self._replies.append(Reply(to.asker, "answer", body))

    def emit(self, plugin: type[Any], event: object) -> None:
        """Give an output to a plugin."""
        declared = plugin_of(plugin)
        if self._plugins.get(declared.name) is not declared:
            raise WrongCall(
                f"expected a plugin of app {self.me.group!r} ({', '.join(self._plugins) or 'it has none'}), found {plugin.__name__}: "
                "add it to App(…, plugins=…)"
            )
        check_output(declared, event)
        self._outputs.append(Output(declared.name, *_encoded(event)))

    def also(self, part: Contribution) -> None:
        """Add a part of another library to the record."""
        check_part(part, self._book)
        maker = "another library" if part.origin is None else part.origin.maker
        if part.expect:
            raise WrongCall(
                f"expected a part that can always be added, as queue.pushed(…), found one of {maker} that expects something of the log: "
                f"{', '.join(sorted(part.expect)[:3])}; do that in a program or a plugin, and send the machine its result"
            )
        if any(str(type(event).__struct_config__.tag).startswith(OF_MACHINES) for event in part.events):
            raise WrongCall(
                f"expected a part of another library, found one of {maker}: use self.send(…) and self.create(…)"
            )
        if part.events:
            self._parts.append(part)

    def set_timer(self, seconds: float, event: object, name: str, every: float | None) -> None:
        """Set a timer."""
        if not _is_number(seconds) or not 0 <= seconds <= TIMER_MOST_S:
            raise WrongCall(f"expected after(…) with seconds from 0 to {TIMER_MOST_S}, a number, found {seconds!r:.80}")
        if every is not None and (not _is_number(every) or not 0 < every <= TIMER_MOST_S):
            raise WrongCall(
                f"expected every= with seconds above 0 and of at most {TIMER_MOST_S}, or None for a timer that fires once, "
                f"found {every!r:.80}"
            )
        if not isinstance(name, str):
            raise WrongCall(f"expected name= with a text, found {name!r:.80}")
        kind, body = self._encoded_here(event)
        every_ms = 0 if every is None else max(1, round(every * 1_000))
        due_ms = self._at_ms + round(seconds * 1_000)
        name = name or kind
        self._timers[name] = TimerSet(name, self._before.k + 1, self._at_ms, due_ms, every_ms, kind, body)

    def cancel_timer(self, name: str) -> None:
        """Remove a timer."""
        if name in self._timers or name in self._before.timers:
            self._timers[name] = TimerSet(name, self._before.k + 1)

    def announce(self, event: object) -> None:
        """Tell monitors about an event."""
        if not isinstance(event, Event):
            raise WrongCall(f"expected an event to announce, found {event!r:.80}")
        self._announced.append(event)

    def halt(self) -> None:
        """End the machine after this handler."""
        self._halted = True


def _check_fits(handled: Handled) -> None:
    """Check that the effects of a handler fit one record.

    Raises:
        CommitTooLarge: they do not.
    """
    commit, beside, loose = handled
    if loose:  # they may be to machines of other hosts
        commit = msgspec.structs.replace(commit, sends=(*commit.sends, *loose))
    size = len(msgspec.msgpack.encode(commit)) + beside.size(commit)
    if size > COMMIT_BYTES:
        raise CommitTooLarge(
            f"expected a handler to change and send at most {COMMIT_BYTES} bytes, found {size}: do a part of it, and continue in "
            "a later handler, by self.send(self.me, …)",
            expected=COMMIT_BYTES,
            found=size,
        )
    streams = streams_of(commit, beside)
    if streams > RECORD_TAGS:
        raise CommitTooLarge(
            f"expected a handler to send to partitions, answer processes and write to other libraries, together at most {RECORD_TAGS}, "
            f"found {streams}: do a part of it, and continue in a later handler, by self.send(self.me, …)",
            expected=RECORD_TAGS,
            found=streams,
        )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _name_of(event: object) -> str:
    """Return the stored name of an event.

    Raises:
        WrongCall: this is no event.
    """
    if not isinstance(event, Event):
        raise WrongCall(f"expected an event, found {event!r:.80}")
    return name_of(type(event))


def _encoded(event: object, kind: type[Event] | None = None) -> tuple[str, bytes]:
    """Return the stored name and the bytes of an event, which can be read again.

    Args:
        event: the event.
        kind: the class as which it is read, by default its own.

    Raises:
        WrongCall: this is no event.
        NotEncodable: it cannot be stored, or would be read as a different event.
    """
    name = _name_of(event)
    codec = codec_of_event(kind or cast(type[Event], type(event)))
    body = codec.encode(event)
    codec.check(body, event)
    return name, body


def creation(ref: Ref[Any], declaration: Declaration, init: object, *, digest: str = "") -> Message:
    """Return the message that creates a machine.

    Raises:
        WrongCall: the machine does not accept the first event.
        NotEncodable: the event cannot be stored, or would be read as a different event.
    """
    if init is None:
        return Message(str(ref), kind=declaration.kind, digest=digest)
    name = _name_of(init)
    if name not in declaration.accepts:
        raise WrongCall(
            f"expected {declaration.cls.__name__} to be created with an event that it accepts "
            f"({', '.join(declaration.accepts)}), found {name}"
        )
    name, body = _encoded(init, declaration.accepts[name])
    return Message(str(ref), name, body, declaration.kind, digest=digest)


def message(ref: Ref[Any], event: object, *, dedup: str = "") -> Message:
    """Return the message that brings an event to a machine.

    Raises:
        WrongCall: this is no event.
        NotEncodable: it cannot be stored, or would be read as a different event.
    """
    name, body = _encoded(event)
    return Message(str(ref), name, body, dedup=dedup)
