"""Declarations of plugins, and what a handler emits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

from bokirsm import (
    Answers,
    App,
    CommitTooLarge,
    DeclarationError,
    Delivery,
    Event,
    Machine,
    Plugin,
    Ref,
    State,
    WrongCall,
)
from bokirsm.machine.handling import HandlerFailed
from bokirsm.machine.plugins import plugin_of
from bokirsm.machine.values import encode
from bokirsm.model.events import Output
from libs.tests.rsm.one_machine import OneMachine
from libs.tests.rsm.shop import SHOP, Mail, Mails, Order, Place

T = TypeVar("T")


class Sms(Event):
    number: int


class Messages(Plugin[Mail | Sms]):
    async def deliver(self, batch: Sequence[Delivery[Mail | Sms]]) -> Answers:
        return None


class Fakes(Messages):
    async def deliver(self, batch: Sequence[Delivery[Mail | Sms]]) -> Answers:
        return [(one.machine, one.event) for one in batch]


def test_a_plugin_declares_a_name_events_and_limits() -> None:
    mails, messages = plugin_of(Mails), plugin_of(Messages)
    assert (mails.name, list(mails.accepts), mails.timeout_s, mails.most) == ("mails", ["Mail"], 5, 4)
    assert (messages.name, list(messages.accepts), messages.timeout_s, messages.most) == (
        "Messages",
        ["Mail", "Sms"],
        30,
        16,
    )
    assert plugin_of(Fakes) is messages, "it is the same plugin, done in another way"
    assert (
        repr(Delivery("7-0", Ref("g", 1, "m"), Sms(3), 2)) == "Delivery('7-0', Ref('g/1/m'), Sms(number=3), attempt=2)"
    )


class Generic(Plugin[T]):
    """A plugin for any events, which its subclasses name."""

    async def deliver(self, batch: Sequence[Delivery[T]]) -> Answers:
        return None


def without_deliver() -> None:
    class Nothing(Plugin[Mail]):
        pass


def blocking() -> None:
    class Blocks(Plugin[Mail]):
        def deliver(self, batch: Sequence[Delivery[Mail]]) -> Answers:  # type: ignore[override]
            return None


def blocking_fake() -> None:
    class Fake(Messages):
        deliver = None  # type: ignore[assignment]


def no_events() -> None:
    class Numbers(Plugin[int]):
        async def deliver(self, batch: Sequence[Delivery[int]]) -> Answers:
            return None


def no_time() -> None:
    class Never(Generic[Mail], timeout_s=0):
        pass


def none_at_once() -> None:
    class Never(Generic[Mail], most=0):
        pass


def another_name() -> None:
    class Fake(Messages, name="other"):
        pass


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (without_deliver, "Nothing to have a method `async def deliver"),
        (blocking, "Blocks to have a method `async def deliver"),
        (blocking_fake, "Fake to have a method `async def deliver"),
        (no_events, "Numbers to accept event classes"),
        (no_time, "timeout_s= above 0"),
        (none_at_once, "most= of at least 1"),
        (another_name, "the plugin 'Messages' done in another way"),
    ],
)
def test_a_plugin_that_cannot_work_is_refused(make: Any, found: str) -> None:
    with pytest.raises(DeclarationError, match=found):
        make()


def test_plugins_of_an_app_have_different_names() -> None:
    class Also(Generic[Mail], name="mails"):
        pass

    assert list(App("a", [], plugins=[Mails, Messages, Mails]).plugins) == ["mails", "Messages"]
    with pytest.raises(DeclarationError, match="found 'mails' for Mails and"):
        App("a", [], plugins=[Mails, Also])
    with pytest.raises(WrongCall, match="expected a class of plugins"):
        App("a", [], plugins=[Order])  # type: ignore[list-item]


def one_order() -> OneMachine:
    one = OneMachine(Order)
    one.plugins = dict(SHOP.plugins)
    return one


def test_outputs_are_beside_the_commit_in_order() -> None:
    one = one_order()
    one.give(Place("a"))
    assert one.beside.outputs == (Output("mails", "Mail", encode(Mail("a"))),)


class Emits(Machine[Place | Sms]):
    run = State(start=True)

    @run.on(Sms)
    def sms(self, e: Sms) -> None:
        self.emit(Messages, e)

    @run.on(Place)
    def place(self, e: Place) -> None:
        self.emit(Mails, e if e.text == "wrong" else Mail(e.text, pad=bytes(e.size)))  # type: ignore[misc]


@pytest.mark.parametrize(
    ("event", "error", "found"),
    [
        (Sms(1), WrongCall, "a plugin of app 'g' \\(mails\\), found Messages: add it to App"),
        (Place("wrong"), WrongCall, "an event that Mails delivers \\(Mail\\), found Place"),
        (Place("a", 600_000), CommitTooLarge, "found 6"),
    ],
)
def test_an_output_that_cannot_be_delivered_is_a_fault_of_its_handler(
    event: Event, error: type[Exception], found: str
) -> None:
    one = OneMachine(Emits)
    one.plugins = dict(SHOP.plugins)
    with pytest.raises(HandlerFailed, match=found) as caught:
        one.give(event)
    assert isinstance(caught.value.__cause__, error)
