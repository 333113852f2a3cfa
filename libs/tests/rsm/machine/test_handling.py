"""One handler: what it reads, changes, sends and chooses, and what becomes of one that fails."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from bokilib.errors import NotEncodable
from bokirsm import (
    Answers,
    Ask,
    CommitTooLarge,
    Delivery,
    EndlessHandler,
    Event,
    HandlerAwaited,
    Machine,
    Plugin,
    Ref,
    Refused,
    Register,
    State,
    Table,
    UndeclaredField,
    UnhandledEvent,
    Volatile,
    WrongCall,
)
from bokirsm.machine import handling
from bokirsm.machine.declaration import Reaction
from bokirsm.machine.handling import Choices, HandlerFailed, Handling, Work, World, handle, skip
from bokirsm.machine.values import encode
from bokirsm.model.events import Reply
from bokirsm.model.machine_state import MachineState
from libs.tests.rsm.one_machine import OneMachine, SetTokens
from libs.tests.rsm.words import Counter, Freq, Init, Max, Word

TOP: Ref[Freq] = Ref("g", 9, "top")


def counter() -> OneMachine:
    return OneMachine(Counter, Init(TOP))


def test_the_word_count_of_the_paper() -> None:
    one = counter()
    assert one.commits[0].kind == "Counter" and one.state.state == "counting"
    first, second, other = [one.give(Word(text, asker=f"p/{n}")) for n, text in enumerate(["a", "a", "b"])]
    assert [send.event for send in first.sends] == ["Freq"] and first.sends[0].to == "g/9/top"
    assert first.replies == (Reply("p/0", "answer", encode(1)),) and second.replies[0].body == encode(2)
    assert other.sends == () and other.registers == {}, "its frequency is not the highest"
    assert other.keys == {"freq": {encode("b"): encode(1)}}, "only keys that changed are stored"
    assert one.volatile == {"since_crash": 3}


def test_a_deferred_event_waits_and_a_creation_without_event_is_a_commit() -> None:
    one = OneMachine(Counter)
    assert one.state.state == "waiting" and one.reaction(Word("a")) is Reaction.DEFER
    assert one.reaction(Init(TOP)) is Reaction.HANDLE
    one.give(Init(TOP))
    assert one.reaction(Word("a")) is Reaction.HANDLE


class Do(Event):
    what: str


class Never(Event):
    pass


class Look(Ask[list[str]]):
    pass


class Point(msgspec.Struct):
    x: int = 0


class Bag(Machine[Do | Look | Never]):
    names: Register[list[str]] = Register([])
    points: Table[str, Point] = Table()
    story: Register[list[str]] = Register([])
    memory: Volatile[list[str]] = Volatile(list)
    one = State(start=True)
    two = State(ignore=(Never,))
    three = State(defer=(Event,))

    @one.entry
    def enter_one(self) -> None:
        self.story.append("in one")

    @one.exit
    def leave_one(self) -> None:
        self.story.append("out of one")

    @two.entry
    async def enter_two(self) -> None:
        self.story.append("in two")
        self.first(Do("append"))

    @one.on(Do)
    @two.on(Do)
    async def do(self, e: Do) -> None:
        what, _, more = e.what.partition(" ")
        await getattr(self, f"do_{what}")(more)

    async def do_append(self, text: str) -> None:
        self.names.append(text or "x")
        self.memory.append(text)

    async def do_point(self, key: str) -> None:
        self.points[key] = Point()
        self.points[key].x += 5

    async def do_move(self, key: str) -> None:
        self.points[key].x += 1

    async def do_delete(self, key: str) -> None:
        del self.points[key]

    async def do_jump(self, to: str) -> None:
        self.jump(getattr(self, to))

    async def do_twice(self, to: str) -> None:
        self.jump(self.two)
        self.jump(self.one)

    async def do_again(self, text: str) -> None:
        self.first(Do("again"))

    async def do_fail(self, text: str) -> None:
        self.names.append("lost")
        self.send(self.me, Do("lost"))
        raise ValueError(text)

    async def do_exit(self, text: str) -> None:
        sys.exit(1)

    async def do_sleep(self, text: str) -> None:
        await asyncio.sleep(0)

    async def do_assign(self, text: str) -> None:
        self.undeclared = text

    async def do_large(self, text: str) -> None:
        self.names = ["x" * 1_000] * 600

    async def do_wrong(self, text: str) -> None:
        self.names = 5  # type: ignore[assignment]

    async def do_surrogate(self, text: str) -> None:
        self.names = ["\ud800"]

    async def do_halt(self, text: str) -> None:
        self.names.append("last")
        self.send(self.me, Do("append"))
        self.jump(self.two)
        self.halt()

    @one.on(Look)
    def look(self, e: Look) -> None:
        if not self.names:
            raise Refused("there is nothing in the bag")
        self.reply(e, self.names)


def test_changes_in_place_are_stored_and_reads_are_not() -> None:
    one = OneMachine(Bag)
    one.give(Do("append a"))
    assert one.state.registers["names"] == encode(["a"]) and one.volatile == {"memory": ["a"]}
    assert one.give(Look(asker="p/1")).registers == {}
    assert one.give(Do("point k")).keys == {"points": {encode("k"): encode(Point(5))}}
    assert one.give(Do("move k")).keys == {"points": {encode("k"): encode(Point(6))}}
    assert one.give(Do("delete k")).keys == {"points": {encode("k"): None}} and one.state.tables == {"points": {}}


def test_an_event_is_encoded_when_it_is_sent() -> None:
    class Names(Event):
        names: list[str]

    class Sender(Machine[Names]):
        got: Register[list[str]] = Register([])
        run = State(start=True)

        @run.on(Names)
        def take(self, e: Names) -> None:
            self.send(self.me, e)
            self.got = e.names
            e.names.append("later")

    commit = OneMachine(Sender).give(Names(["a"]))
    assert commit.sends[0].body == encode(Names(["a"])) and commit.registers["got"] == encode(["a", "later"])


def test_a_jump_takes_exit_entry_and_first_events_into_one_commit() -> None:
    one = OneMachine(Bag)
    commit = one.give(Do("jump two"))
    assert commit.state == "two" and commit.registers["names"] == encode(["x"])
    assert commit.registers["story"] == encode(["in one", "out of one", "in two"])
    assert one.reaction(Never()) is Reaction.IGNORE
    one.give(Do("jump three"))
    assert one.reaction(Never()) is Reaction.DEFER and one.reaction(Do("x")) is Reaction.DEFER


@pytest.mark.parametrize(
    ("event", "error", "text"),
    [
        (Do("fail why"), ValueError, "why"),
        (Do("exit"), SystemExit, "1"),
        (Do("sleep"), HandlerAwaited, "Bag.do to compute"),
        (Do("assign x"), UndeclaredField, "self.undeclared"),
        (Do("again"), EndlessHandler, "at most 1000 jumps"),
        (Do("twice"), WrongCall, "one jump"),
        (Do("large"), CommitTooLarge, "continue in a later handler"),
        (Do("wrong"), NotEncodable, r"expected Bag\.names to be of type list\[str\], found 5"),
        (Do("surrogate"), NotEncodable, "surrogates"),
        (Never(), UnhandledEvent, r"@one.on\(Never\), or State\(defer=\(Never,\)\), or State\(ignore=\(Never,\)\)"),
    ],
)
async def test_a_handler_that_fails_changes_nothing(event: Event, error: type[BaseException], text: str) -> None:
    one = OneMachine(Bag)
    one.give(Do("append a"))
    with pytest.raises(HandlerFailed, match=text) as failed:
        one.give(event)
    assert isinstance(failed.value.__cause__, error)
    assert one.state.registers["names"] == encode(["a"])
    one.give(Do("append b"))
    assert one.state.registers["names"] == encode(["a", "b"]), "what the failed handler changed in place is gone"


def test_the_step_limit_is_where_the_error_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handling, "STEPS", 3)
    with pytest.raises(HandlerFailed, match="at most 3"):
        OneMachine(Bag).give(Do("again"))


def test_a_refused_question_is_answered_and_changes_nothing() -> None:
    one = OneMachine(Bag)
    commit = one.give(Look(asker="p/4"))
    assert commit.replies == (Reply("p/4", "refused", encode("there is nothing in the bag")),)
    assert not commit.registers and not commit.sends and commit.state is None and commit.k == 2


def test_a_refusal_leaves_no_volatile_value() -> None:
    class Careful(Machine[Look]):
        asked: Volatile[list[int]] = Volatile(list)
        run = State(start=True)

        @run.on(Look)
        def look(self, e: Look) -> None:
            self.asked.append(1)
            if e.asker:
                raise Refused("not now")
            assert self.asked == [1]

    one = OneMachine(Careful)
    for asker in ("p/1", "p/2", ""):
        one.give(Look(asker=asker))


def test_a_halted_machine_keeps_what_it_sent_and_nothing_else() -> None:
    one = OneMachine(Bag)
    one.give(Do("append a"))
    commit = one.give(Do("halt"))
    assert commit.halted and len(commit.sends) == 1 and not commit.registers and commit.state is None
    assert one.state.halted and not one.state.registers


class Tick(Event):
    pass


class Start(Event):
    pass


class Clock(Machine[Tick | Start]):
    ticks: Register[int] = Register(0)
    at: Register[list[str]] = Register([])
    run = State(start=True)

    @run.on(Start)
    def start(self, e: Start) -> None:
        self.after(2, Tick(), every=1.5)
        self.after(1, Start(), name="later")
        self.at.append(self.now.isoformat())

    @run.on(Tick)
    def tick(self, e: Tick) -> None:
        self.ticks += 1
        if self.ticks == 2:
            self.cancel("Tick")


def test_timers_are_set_fire_again_and_are_cancelled() -> None:
    one = OneMachine(Clock, Start())
    assert {name: (timer.set_ms, timer.due_ms) for name, timer in one.state.timers.items()} == {
        "Tick": (1_000, 3_000),
        "later": (1_000, 2_000),
    }
    one.now_ms = 3_100
    assert one.fire("Tick").timers[0].due_ms == 4_600, "counted from the firing"
    one.now_ms = 2_500
    one.fire("later")
    assert one.state.at_ms == 3_100, "the time of a machine never goes back"
    assert one.state.timers["Tick"].due_ms == 5_100, "a timer of the same name replaces it"
    one.fire("Tick")
    assert set(one.state.timers) == {"later"}
    dropped = skip(one.state, Work("Start", timer="later"), 0)
    one.state.apply(dropped)
    assert not one.state.timers and dropped.k == one.state.k


def test_now_random_and_uuid_come_from_outside() -> None:
    class Draw(Machine[Tick]):
        drawn: Register[list[str]] = Register([])
        run = State(start=True)

        @run.on(Tick)
        def draw(self, e: Tick) -> None:
            assert self.now == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
            number, part = self.random.below(10), self.random.fraction()
            assert 0 <= number < 10 and 0 <= part < 1
            assert sorted(self.random.shuffled([3, 1, 2])) == [1, 2, 3] and self.random.choice("a") == "a"
            self.drawn = [self.uuid()]

    one = OneMachine(Draw)
    one.give(Tick())
    (text,) = msgspec.msgpack.decode(one.state.registers["drawn"])
    assert len(text) == 36 and text[14] == "4" and text[19] in "89ab"


def test_children_have_names_that_no_run_gives_twice() -> None:
    class Parent(Machine[Tick]):
        run = State(start=True)

        @run.on(Tick)
        def make(self, e: Tick) -> None:
            child = self.create(Max, near=self.me)
            self.send(child, Freq("a", 1))
            self.create(Counter, Init(child))

    one = OneMachine(Parent)
    first, second = one.give(Tick()), one.give(Tick())
    assert [made.to.rpartition("/")[2] for made in (*first.creates, *second.creates)] == ["m#1", "m#2", "m#3", "m#4"]
    assert first.creates[0].to == "g/7/m#1", "near its parent"
    assert (first.creates[0].kind, first.creates[1].event) == ("Max", "Init")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("send", "expected a machine to send to"),
        ("create", "expected Max to be created with an event that it accepts"),
        ("first", "expected state 'run' of Wrong to handle Never"),
        ("reply", "expected a question that Wrong accepts"),
        ("after", r"expected after\(…\) with seconds from 0 to \d+, a number, found -1"),
        ("timedelta", r"expected after\(…\) .*found datetime.timedelta"),
        ("every", "expected every= with seconds above 0 .*, or None for a timer that fires once, found 0"),
        ("name", "expected name= with a text, found 5"),
        ("event", "expected an event, found 'text'"),
    ],
)
def test_calls_with_wrong_arguments_say_what_is_expected(call: str, text: str) -> None:
    class Wrong(Machine[Tick]):
        run = State(start=True)

        @run.on(Tick)
        def wrong(self, e: Tick) -> None:
            me, max_ = self.me, Max
            calls: dict[str, Callable[[], object]] = {
                "send": lambda: self.send("g/1/x", e),  # type: ignore[arg-type]
                "create": lambda: self.create(max_, e),  # type: ignore[misc]
                "first": lambda: self.first(Never()),  # type: ignore[arg-type]
                "reply": lambda: self.reply(Word("a"), 1),
                "after": lambda: self.after(-1, e),
                "timedelta": lambda: self.after(timedelta(seconds=1), e),  # type: ignore[arg-type]
                "every": lambda: self.after(1, e, every=0),
                "name": lambda: self.after(1, e, name=5),  # type: ignore[arg-type]
                "event": lambda: self.send(me, "text"),  # type: ignore[misc]
            }
            calls[call]()

    with pytest.raises(HandlerFailed, match=text):
        OneMachine(Wrong).give(Tick())


class Num(Event):
    n: int


class Fancy(Num, name="Num"):
    """An event of the same stored name."""

    color: str = ""


class Numbers(Plugin[Num]):
    async def deliver(self, batch: Sequence[Delivery[Num]]) -> Answers:
        return None


class Show(Ask[Point]):
    pass


class ColoredPoint(Point):
    color: str = ""


@pytest.mark.parametrize(
    ("call", "place"),
    [
        ("send", "expected Num to be of type Num.*Expected `int`, got `str`"),
        ("loose", "expected Num to be of type Num"),
        ("create", "expected Num to be of type Num"),
        ("first", "expected Num to be of type Num"),
        ("after", "expected Num to be of type Num"),
        ("emit", "expected Num to be of type Num"),
        ("of one name", "Num cannot be stored: all of this Fancy would be read back as another value"),
        ("point", "Sender.point cannot be stored: all of this ColoredPoint would be read back as another value"),
        ("row", "Sender.rows cannot be stored: all of this ColoredPoint would be read back as another value"),
    ],
)
def test_a_value_of_another_type_is_a_fault_of_the_handler_that_gives_it(call: str, place: str) -> None:
    """Not of the machine that gets it, whose other events would wait."""
    text: Any = "one"

    class Sender(Machine[Num | Start]):
        point: Register[Point] = Register(Point())
        rows: Table[int, Point] = Table()
        run = State(start=True, ignore=(Num,))

        @run.on(Start)
        def start(self, e: Start) -> None:
            me: Ref[Any] = self.me
            if call == "point":
                self.point = ColoredPoint(1)
            elif call == "row":
                self.rows[1] = ColoredPoint(1)
            calls: dict[str, Callable[[], object]] = {
                "send": lambda: self.send(me, Num(text)),
                "loose": lambda: self.send(me, Num(text), at_most_once=True),
                "create": lambda: self.create(Sender, Num(text)),
                "first": lambda: self.first(Num(text)),
                "after": lambda: self.after(1, Num(text)),
                "emit": lambda: self.emit(Numbers, Num(text)),
                "of one name": lambda: self.after(1, Fancy(1, "red")),
            }
            calls.get(call, lambda: None)()

    one = OneMachine(Sender)
    one.plugins = {"Numbers": Numbers.declaration}
    with pytest.raises(HandlerFailed, match=place) as failed:
        one.give(Start())
    assert isinstance(failed.value.__cause__, NotEncodable)


def test_an_answer_that_its_question_would_cut_is_refused() -> None:
    class Shower(Machine[Show]):
        run = State(start=True)

        @run.on(Show)
        def show(self, e: Show) -> None:
            self.reply(e, ColoredPoint(1))

    with pytest.raises(HandlerFailed, match="the answer of Show cannot be stored: all of this ColoredPoint"):
        OneMachine(Shower).give(Show(asker="p/1"))


class Fixed(Choices):
    def below(self, bound: int) -> int:
        return bound - 1


class Five(Choices):
    def below(self, bound: int) -> int:
        return min(5, bound - 1)


class Chooser(Machine[Never]):
    chosen: Register[list[int]] = Register([])
    run = State(start=True)

    @run.on(Never)
    def choose(self, e: Never) -> None:
        self.chosen = [self.random.below(7), self.random.choice([1, 2, 3])]
        self.announce(e)
        if self.chosen[0] == 5:
            raise ValueError("five")


def test_a_tester_makes_the_choices_of_a_handler_and_hears_announcements() -> None:
    announced: list[Event] = []
    tokens = SetTokens()
    world = World(TOP, 1_000, tokens, choices=Fixed(tokens), announced=announced)
    state = MachineState("Chooser", k=1, state="run")
    handled = handle(Chooser.declaration, state, {}, Work("Never", encode(Never())), world)
    assert handled.commit.registers == {"chosen": encode([6, 3])} and announced == [Never()]
    handle(Chooser.declaration, state, {}, Work("Never", encode(Never())), World(TOP, 1_000, tokens))  # nobody listens
    five = World(TOP, 1_000, tokens, choices=Five(tokens), announced=announced)
    with pytest.raises(HandlerFailed, match="five"):
        handle(Chooser.declaration, state, {}, Work("Never", encode(Never())), five)
    assert announced == [Never()], "a handler that failed announced nothing"
    never: Any = "no event"
    now = Handling(Chooser.declaration, state, {}, World(TOP, 1_000, tokens))
    with pytest.raises(WrongCall, match="expected an event to announce"):
        now.announce(never)
