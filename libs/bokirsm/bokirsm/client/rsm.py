"""Machines from outside: programs create them, send them events, and ask them.

    async with Rsm(app, client.book("b")) as rsm:
        counter = await rsm.create(Counter, Init(top), key="c-1")
        await rsm.send(counter, Word("a"))
        print(await rsm.ask(Word("a").to(counter)))

- What a program sends is in the log when the call returns. Events of one task to one machine arrive in the order of the calls.
- Calls that are made at the same time share a record.
- `sending` and `creating` are parts of a record of several libraries: the ACK of a message of a queue, and the event that it becomes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from functools import lru_cache
from types import TracebackType
from typing import Any, Final, TypeVar

import msgspec

from boki_common.errors import Conflict, InvalidArgument
from boki_common.runtime import confined
from bokilib.append.batcher import AppendBatcher
from bokilib.append.log import Log, Tokens
from bokilib.errors import AtomicTooLarge
from bokilib.ports import BookPort, PayloadHook, Random
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokirsm.client.answers import Answers
from bokirsm.client.full_inboxes import FullInboxes
from bokirsm.errors import AnswerTimeout, IdReused, InboxFull, NoSuchMachine
from bokirsm.lane import loading
from bokirsm.machine.app import App
from bokirsm.machine.handling import COMMIT_BYTES, creation, message
from bokirsm.machine.machine import Machine
from bokirsm.machine.refs import Ref, keyed
from bokirsm.machine.values import (
    Codec,
    Event,
    Question,
    answer_type,
    codec_of,
    codec_of_event,
    digest_of_first,
    earlier_digests,
)
from bokirsm.model.events import Created, Inputs, Message, Resumed, Skipped
from bokirsm.model.partition_state import size_of

F = TypeVar("F")
R = TypeVar("R")

TIMEOUT_S: Final = 30.0
AROUND_BYTES: Final = 64
"""Bytes of a message beside its event, about."""
DEDUP_CHARS: Final = 200
ATTEMPTS: Final = 16
"""Attempts of a creation by key, while the machine of the key is forgotten."""
IN_FLIGHT: Final = 2
"""Records with events from outside that are in flight at once."""


class Rsm:
    """The machines of an app in a book, from outside; see the module.

    Attributes:
        app: the app.
        log: of the book.
    """

    def __init__(
        self,
        app: App,
        book: BookPort | Log,
        *,
        hook: PayloadHook | None = None,
        random: Random | Tokens | None = None,
    ) -> None:
        """Prepare the client. It needs no block, but leaving one ends its tasks.

        Args:
            app: the app.
            book: the book, or the log that other libraries share with it.
            hook: as for `bokilib.Log`.
            random: the source of names.
        """
        self.app: Final = app
        self.log: Final = book if isinstance(book, Log) else Log(book, hook=hook, random=random)
        self._tokens: Final = random
        self._batcher: Final = AppendBatcher(self.log, "bokirsm batcher", in_flight=IN_FLIGHT)
        self._answers: Final = Answers(self.log)
        self._inboxes: Final = FullInboxes(self.log, app.name)
        self._names = 0

    async def __aenter__(self) -> Rsm:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._answers.close()
        finally:
            await self._inboxes.close()

    # -- creating

    async def create(
        self, cls: type[Machine[F]], init: F | None = None, *, key: str | None = None, near: Ref[Any] | None = None
    ) -> Ref[F]:
        """Create a machine.

        Args:
            cls: its class.
            init: its first event, which it handles in its start state.
            key: its name in the group. If a machine with this key exists, with the same class and first event, it is returned. By
                default the machine has a name of its own.
            near: a machine in whose partition it should be, so that one host runs both.

        Raises:
            IdReused: a machine with this key was created with another class or first event.
            NotEncodable: a value of the first event is not of its declared type. Nothing was sent.
            InboxFull: too many events wait in its partition, and no machine with this key exists. It was not created.
            AppendUnknown: it may be created. With a key the call may be repeated.
        """
        self._inboxes.begin()
        part, ref = self._creation(cls, init, key, near)
        try:
            self._inboxes.check([ref])
        except InboxFull:
            found = await self._existing_now(ref, part, init) if key is not None else None
            if found is None:
                raise
            return found
        for _ in range(ATTEMPTS):
            try:
                await self.log.append(part)
            except Conflict:
                found = await self._existing(ref, part, init)
                if found is not None:
                    return found
            else:
                return ref  # else the machine of the key was forgotten meanwhile: the key is free again
        raise IdReused(
            f"expected {ref.name!r} to be created once, found that its stream has records which create no machine: take another key",
            key=ref.name,
            expected=part.events[0].message.kind if isinstance(part.events[0], Created) else "",
            found="",
        )

    def creating(
        self, cls: type[Machine[F]], init: F | None = None, *, key: str | None = None, near: Ref[Any] | None = None
    ) -> tuple[Contribution, Ref[F]]:
        """Return the part of a record that creates a machine, and the machine. The arguments are those of `create`.

        If a machine with this key exists, the whole record fails with a Conflict.

        Raises:
            InboxFull: too many events wait in its partition. Nothing was read, so a machine with this key may exist.
        """
        part, ref = self._creation(cls, init, key, near)
        self._inboxes.check([ref])
        return part, ref

    def _creation(
        self, cls: type[Machine[Any]], init: object, key: str | None, near: Ref[Any] | None
    ) -> tuple[Contribution, Ref[Any]]:
        confined.check(confined.A_CLIENT)
        group, declaration = self.app.name, self.app.declaration(cls)
        self._names += key is None
        ref = keyed(group, f"{self._answers.process}-{self._names}" if key is None else key, near)
        made = _bounded(creation(ref, declaration, init))
        if key is not None:
            first = None if init is None else codec_of_event(declaration.accepts[made.event]).decode(made.body)
            made = msgspec.structs.replace(made, digest=digest_of_first(made.kind, first))
        partition, machine = tags.rsm_partition(group, ref.partition), tags.rsm_machine(group, ref.name)
        event = Created(f"{group}/{ref.name}", made)
        if key is None:
            return Contribution((partition,), {}, (event,), self._origin), ref
        return Contribution((partition, machine), {machine: None}, (event,), self._origin), ref

    async def _existing_now(self, ref: Ref[Any], part: Contribution, init: object) -> Ref[Any] | None:
        """Return what `_existing` does, also of a machine that another process has just created: no append says what there is."""
        await self.log.book.now(consistency="linearizable")
        return await self._existing(ref, part, init)

    async def _existing(self, ref: Ref[Any], part: Contribution, init: object) -> Ref[Any] | None:
        """Return the machine of a key that exists, or existed so recently that its key is not free yet; None if there is none any more.

        Raises:
            IdReused: it was created otherwise.
        """
        (wanted,) = part.events
        assert isinstance(wanted, Created)
        found = await loading.read_machine(self.log, self.app.name, ref.name)
        if found.head is not None:
            event = found.head.event
            there = Ref[Any](ref.group, event.partition, ref.name)
            return self._same(wanted.message, init, there, event.kind, event.digest)
        if found.created is None:
            return None
        message = found.created[2].message
        return self._same(wanted.message, init, Ref.parse(message.to), message.kind, message.digest)

    def _same(self, wanted: Message, init: object, found: Ref[Any], kind: str, digest: str) -> Ref[Any]:
        if digest == wanted.digest:
            return found
        if isinstance(init, Event):
            read = codec_of_event(self.app.machines[wanted.kind].accepts[wanted.event]).decode(wanted.body)
            if any(digest in earlier_digests(wanted.kind, one) for one in (init, read)):
                return found
        raise IdReused(
            f"expected {found.name!r} to be created with {wanted.kind} and the same first event, found a machine of {kind}: "
            "take another key, or create it as it was",
            key=found.name,
            expected=f"{wanted.kind} {wanted.digest}",
            found=f"{kind} {digest}",
        )

    # -- sending

    async def send(self, to: Ref[F], event: F, *, dedup_id: str | None = None) -> int:
        """Send an event to a machine. When the call returns, it is in the log, and will be handled once.

        Args:
            to: the machine.
            event: what it accepts.
            dedup_id: of several events to one machine with one id, within five minutes, the first is handled.

        Returns:
            The seqnum of the record.

        Raises:
            InvalidArgument: this is no machine of the app, or no id.
            NotEncodable: a value of the event is not of its declared type. Nothing was sent.
            InboxFull: too many events wait in the partition of the machine.
            AppendUnknown: it may be in the log. With a `dedup_id` the call may be repeated.
        """
        part = self.sending(to, event, dedup_id=dedup_id)
        return await self._append(part)

    async def send_many(self, events: Iterable[tuple[Ref[Any], Any]]) -> int:
        """Send events to machines by one record: all of them, or none. Return its seqnum.

        Raises:
            AtomicTooLarge: they do not fit one record.
            InvalidArgument, NotEncodable, InboxFull, AppendUnknown: as `send`.
        """
        return await self._append(self._part([self._message(to, event, None) for to, event in _pairs(events)]))

    def sending(self, to: Ref[F], event: F, *, dedup_id: str | None = None) -> Contribution:
        """Return the part of a record that sends an event to a machine."""
        return self._part([self._message(to, event, dedup_id)])

    def _message(self, to: Ref[Any], event: object, dedup_id: str | None) -> Message:
        self._check_machine(to)
        if dedup_id is not None and not (
            isinstance(dedup_id, str) and 1 <= len(dedup_id) <= DEDUP_CHARS and _is_encodable(dedup_id)
        ):
            raise InvalidArgument(f"expected a dedup_id of 1 to {DEDUP_CHARS} characters, found {dedup_id!r:.80}")
        return _bounded(message(to, event, dedup=dedup_id or ""))

    def _check_machine(self, to: object) -> None:
        """Check that an argument is a machine of the app.

        Raises:
            InvalidArgument: it is not.
        """
        if not isinstance(to, Ref):
            raise InvalidArgument(
                f"expected a machine, found {to!r:.80}: give what `create` returned, or Ref.parse(…) of its text"
            )
        if to.group != self.app.name:
            raise InvalidArgument(
                f"expected a machine of {self.app.name!r}, found one of {to.group!r}: use an Rsm of its app"
            )
        if not _is_encodable(str(to)):
            raise InvalidArgument(f"expected the name of a machine as text that UTF-8 can encode, found {to!r:.200}")

    def _part(self, messages: list[Message]) -> Contribution:
        if not messages:
            raise InvalidArgument("expected one event at least, found none")
        refs = [Ref.parse(one.to) for one in messages]
        self._inboxes.check(refs)
        partitions = dict.fromkeys(one.partition for one in refs)
        streams = tuple(tags.rsm_partition(self.app.name, one) for one in partitions)
        return Contribution(streams, {}, (Inputs(self.app.name, tuple(messages)),), self._origin)

    async def _append(self, part: Contribution) -> int:
        self._inboxes.begin()
        events = part.events
        size = sum(
            len(one.body) + AROUND_BYTES for event in events if isinstance(event, Inputs) for one in event.messages
        )
        return (await self._batcher.append(part, size=size)).seqnum

    @property
    def _origin(self) -> Any:
        return self.log.origin(f"machines of {self.app.name!r}")

    # -- asking

    async def ask(self, question: Question[R], *, timeout_s: float = TIMEOUT_S) -> R:
        """Ask a machine, and return its answer. What it did for the answer is in the log.

        Args:
            question: made by `Ask.to`, with the machine that it is for.
            timeout_s: seconds to wait for the answer.

        Raises:
            InvalidArgument: this is no question with a machine of the app.
            NotEncodable: a value of the question is not of its declared type. Nothing was sent.
            Refused: the machine refused the question, and changed nothing.
            MachineFaulted: a handler of the machine failed. The question may be handled later.
            NoSuchMachine: the machine was never created or has halted. The question was dropped.
            AnswerTimeout: there was no answer in time. The question may be handled later. It is a TimeoutError too.
            UnexpectedAnswer: the question was handled, and the answer has another type than this program expects.
            InboxFull: too many events wait in the partition of the machine. The question was not sent.
            AppendUnknown: the question may be in the log.
        """
        _check_question(question, timeout_s)
        name = type(question.event).__name__
        codec = _codec_of_answer(type(question.event))
        waits = asyncio.timeout(timeout_s)
        try:
            async with waits:
                await self._answers.begin()
                asker, future = self._answers.expect(name, codec)
                try:
                    await self.send(question.to, msgspec.structs.replace(question.event, asker=asker))
                    found: R = await future
                    return found
                finally:
                    self._answers.forget(asker)
        except TimeoutError as error:
            if not waits.expired():
                raise
            raise AnswerTimeout(
                f"expected {question.to} to answer {name} within {timeout_s:g} s, found no answer: it may still handle the question; "
                "see that a host of its app runs and that the machine has no fault, or wait for longer by timeout_s=",
                machine=str(question.to),
                question=name,
                seconds=timeout_s,
            ) from error

    # -- faults

    async def resume(self, machine: Ref[Any]) -> None:
        """Have the event of a fault handled again, after the cause was mended.

        Raises:
            NoSuchMachine: the machine has no fault.
        """
        await self._decide(machine, Resumed)

    async def skip(self, machine: Ref[Any]) -> None:
        """Have the event of a fault dropped. The machine handles the next one.

        Raises:
            NoSuchMachine: the machine has no fault.
        """
        await self._decide(machine, Skipped)

    async def _decide(self, machine: Ref[Any], decision: type[Resumed] | type[Skipped]) -> None:
        self._check_machine(machine)
        machine = Ref.parse(str(machine))
        position = await self.log.book.now(consistency="linearizable")
        none = loading.Room(0, 0)  # a fault is no message
        states = await loading.load_partitions(self.log, self.app.name, [machine.partition], position, none)
        fault = states[machine.partition].faults.get(str(machine))
        if fault is None:
            raise NoSuchMachine(f"expected {machine} to have a fault, found none", machine=str(machine))
        tag = tags.rsm_partition(self.app.name, machine.partition)
        await self.log.append(Contribution((tag,), {}, (decision(str(machine), fault.seqnum),), self._origin))


def _check_question(question: object, timeout_s: object) -> None:
    """Check the arguments of `ask`.

    Raises:
        InvalidArgument: they are no question with a machine, and no time to wait.
    """
    if not isinstance(question, Question):
        raise InvalidArgument(f"expected a question with its machine, as in Word(…).to(ref), found {question!r:.80}")
    if not isinstance(timeout_s, (int, float, type(None))) or timeout_s != timeout_s:
        raise InvalidArgument(f"expected timeout_s= with seconds, a number, found {timeout_s!r:.80}")


def _pairs(events: object) -> Iterator[tuple[Any, Any]]:
    """Yield the arguments of `send_many`.

    Raises:
        InvalidArgument: they are no pairs.
    """
    for one in events if isinstance(events, Iterable) else (events,):
        if not isinstance(one, (tuple, list)) or len(one) != 2:
            raise InvalidArgument(f"expected pairs of a machine and an event, as in [(ref, event)], found {one!r:.80}")
        yield one[0], one[1]


def _is_encodable(text: str) -> bool:
    """Return whether a text can be stored: it has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _bounded(made: Message) -> Message:
    """Return a message that fits a checkpoint, which carries it while its machine defers it.

    Raises:
        AtomicTooLarge: it does not.
    """
    size = size_of(made)
    if size > COMMIT_BYTES:
        raise AtomicTooLarge(
            f"expected an event of at most {COMMIT_BYTES} bytes, found {size}: put what is large into a store, and send its key",
            what="bytes",
            found=size,
            expected=COMMIT_BYTES,
        )
    return made


@lru_cache(1_024)
def _codec_of_answer(question: type[Any]) -> Codec:
    """Return the encoding of the answers to questions of a class."""
    return codec_of(answer_type(question), f"the answer of {question.__name__}")
