"""Programs outside of machines, as a test runs them: coroutines that call what `bokirsm.Rsm` has, and wait for nothing else.

    async def main(rsm: TestRsm) -> None:
        account = await rsm.create(Account, Open(100), key="a")
        rsm.start(transfers(rsm, account))        # another program, at the same time
        assert await rsm.ask(Balance().to(account)) == 100

Each call is a step of the run, before which the tester may run machines and other programs. What a program does between its calls belongs
to the step of the call before.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec

from boki_common.errors import BokiError, InvalidArgument
from bokirsm.errors import IdReused, NoSuchMachine, Refused
from bokirsm.machine.declaration import Declaration
from bokirsm.machine.handling import creation, message
from bokirsm.machine.machine import Machine
from bokirsm.machine.refs import Ref, keyed
from bokirsm.machine.values import Codec, Question, answer_type, codec_of, codec_of_event, digest_of_first
from bokirsm.model.events import Message, Reply
from bokirsm.testing.errors import Diverged, Fault

F = TypeVar("F")
R = TypeVar("R")
T = TypeVar("T")

MAIN: Final = "main"


class Outside(Protocol):
    """The run of a program, as programs outside of machines see it."""

    @property
    def group(self) -> str: ...

    def deliver(self, sent: Message) -> None: ...

    def declared(self, cls: type[Any]) -> Declaration: ...

    def pick(self, bound: int) -> int: ...

    def start(self, main: Coroutine[Any, Any, Any]) -> None: ...

    @property
    def running(self) -> TestClient: ...


class TestClient:
    """A program: a coroutine, which runs from one call to the next.

    Attributes:
        name: of the program.
        waits: the question that it waits for, as text; "" if it can make its next call.
        ended: it returned.
        names: machines without a key that it created, and questions that it asked.
    """

    __test__ = False

    def __init__(self, name: str, body: Coroutine[Any, Any, Any]) -> None:
        self.name: Final = name
        self.waits = ""
        self.ended = False
        self.names = 0
        self._body: Final = body
        self._call: _Call | None = None
        self._codec: Codec | None = None

    def step(self) -> None:
        """Make the next call, and run to the one after it, unless the call waits for an answer.

        Raises:
            Fault: the program raised an error.
        """
        call, self._call = self._call, None
        assert call is not None and not self.waits
        try:
            result = call.make()
        except BokiError as error:
            self.advance(error=error)
            return
        if (
            not self.waits and self._call is None and not self.ended
        ):  # else it waits, or its question was answered at once
            self.advance(result)

    def advance(self, result: Any = None, error: BokiError | None = None) -> None:
        """Run to the next call.

        Args:
            result: of the call before.
            error: of the call before.

        Raises:
            Fault: the program raised an error.
        """
        try:
            found = self._body.throw(error) if error is not None else self._body.send(result)
        except StopIteration:
            self.ended = True
            return
        except (Diverged, Fault):
            raise
        except Exception as raised:
            self.ended = True
            place = f"{self.name} {type(raised).__name__}"
            raise Fault("client", place, f"{self.name} raised {error_text(raised)}") from raised
        if not isinstance(found, _Call):
            self.close()
            text = f"expected {self.name} to await calls of its TestRsm alone, found that it awaits {found!r:.80}"
            raise Fault("client", self.name, text)
        self._call = found

    def expect(self, question: str, codec: Codec) -> str:
        """Wait for the answer to a question. Return its asker."""
        self.waits, self._codec = question, codec
        self.names += 1
        return f"{self.name}/{self.names}"

    def answered(self, reply: Reply) -> None:
        """Take an answer, and run to the next call. The first answer counts."""
        if not self.waits or reply.asker != f"{self.name}/{self.names}":
            return
        self.waits = ""
        assert self._codec is not None
        if reply.outcome == "answer":
            self.advance(self._codec.decode(reply.body))
            return
        text = msgspec.msgpack.decode(reply.body)
        refused = reply.outcome == "refused"
        self.advance(error=Refused(text) if refused else NoSuchMachine(f"no machine {text}", machine=text))

    def close(self) -> None:
        """End the program."""
        self._body.close()
        self.ended = True


class _Call:
    """A call of a program, which is made when the tester chooses so."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make: Final = make


def error_text(error: BaseException) -> str:
    """Return the type and text of an error."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@types.coroutine
def _call(make: Callable[[], Any]) -> Generator[object, Any, Any]:
    """Make a call, when it is the turn of this program."""
    return (yield _Call(make))


@functools.cache
def _codec_of_answer(kind: type[Any]) -> Codec:
    return codec_of(answer_type(kind), f"the answer of {kind.__name__}")


class TestRsm:
    """Machines from outside, in a test: the calls of `bokirsm.Rsm`."""

    __test__ = False

    def __init__(self, run: Outside) -> None:
        self._run: Final = run
        self._keyed: Final[dict[str, tuple[Ref[Any], str]]] = {}
        self._sent: Final[set[tuple[str, str]]] = set()

    async def create(
        self, cls: type[Machine[F]], init: F | None = None, *, key: str | None = None, near: Ref[Any] | None = None
    ) -> Ref[F]:
        """Create a machine of the app, or a mock machine; with a key once.

        Raises:
            IdReused: as `Rsm.create`.
        """
        found: Ref[F] = await _call(lambda: self.created(cls, init, key=key, near=near))
        return found

    def created(
        self, cls: type[Machine[F]], init: F | None = None, *, key: str | None = None, near: Ref[Any] | None = None
    ) -> Ref[F]:
        """Create a machine as `create` does, without a step."""
        declaration = self._run.declared(cls)
        if key is None:
            client = self._run.running
            client.names += 1
            ref = keyed(self._run.group, f"{client.name}-{client.names}", near)
            self._run.deliver(creation(ref, declaration, init))
            return ref
        ref = keyed(self._run.group, key, near)
        made = creation(ref, declaration, init)
        first = None if init is None else codec_of_event(declaration.accepts[made.event]).decode(made.body)
        digest = digest_of_first(made.kind, first)
        known = self._keyed.setdefault(key, (ref, digest))
        if known[1] != digest:
            raise IdReused(f"expected {key!r} to be created as before, found another class or first event", key=key)
        if known[0] is ref:
            self._run.deliver(msgspec.structs.replace(made, digest=digest))
        return known[0]

    async def send(self, to: Ref[F], event: F, *, dedup_id: str | None = None) -> None:
        """Send an event to a machine."""
        await _call(lambda: self._send(to, event, dedup_id))

    async def send_many(self, events: Iterable[tuple[Ref[Any], Any]]) -> None:
        """Send events to machines, at once."""
        pairs = list(events)
        await _call(lambda: self._send_all(pairs))

    def _send_all(self, events: Sequence[tuple[Ref[Any], Any]]) -> None:
        for to, event in events:
            self._send(to, event, None)

    def _send(self, to: Ref[Any], event: object, dedup_id: str | None) -> None:
        if to.group != self._run.group:
            raise InvalidArgument(f"expected a machine of {self._run.group!r}, found one of {to.group!r}")
        if dedup_id is not None and (str(to), dedup_id) in self._sent:
            return
        if dedup_id is not None:
            self._sent.add((str(to), dedup_id))
        self._run.deliver(message(to, event))

    async def ask(self, question: Question[R], *, timeout_s: float = 0) -> R:
        """Ask a machine, and return its answer. A question that is never answered is a fault of the run; there is no timeout.

        Raises:
            Refused: the machine refused it.
            NoSuchMachine: the machine was never created or has halted.
        """
        found: R = await _call(lambda: self._ask(question))
        return found

    def _ask(self, question: Question[Any]) -> None:
        event = question.event
        asker = self._run.running.expect(f"{type(event).__name__} to {question.to.name}", _codec_of_answer(type(event)))
        self._run.deliver(message(question.to, msgspec.structs.replace(event, asker=asker)))

    def choose(self, items: Sequence[T]) -> T:
        """Return one of the items: the tester tries all of them."""
        return items[self._run.pick(len(items))]

    def start(self, program: Coroutine[Any, Any, Any]) -> None:
        """Run another program at the same time."""
        self._run.start(program)


Main: TypeAlias = Callable[[TestRsm], Coroutine[Any, Any, None]]
"""A test's program: it gets the machines from outside."""
