"""A shop whose orders emit mails: the machines and the plugin of the tests of outputs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from boki_common.testing.virtual_time import let_pass
from bokirsm import Answers, App, Ask, Delivery, Event, Machine, Plugin, Register, State


class Mail(Event):
    text: str
    size: int = 0
    pad: bytes = b""


class Place(Event):
    text: str
    size: int = 0


class Sent(Event):
    text: str
    id: str


class Status(Ask[list[str]]):
    pass


class Mails(Plugin[Mail], name="mails", timeout_s=5, most=4):
    """The world outside: what it got, in order. Texts in `broken` fail.

    Attributes:
        got: the ids and texts of deliveries that succeeded.
        calls: the texts of each call.
        broken: texts of which a delivery raises the error.
    """

    def __init__(self) -> None:
        self.got: list[tuple[str, str]] = []
        self.calls: list[list[str]] = []
        self.broken: dict[str, BaseException] = {}
        self.hangs: set[str] = set()
        self.stubborn = False
        self.delay_s = 0.0
        self.each_s = 0.0

    async def deliver(self, batch: Sequence[Delivery[Mail]]) -> Answers:
        self.calls.append([one.event.text for one in batch])
        if self.delay_s:
            await let_pass(self.delay_s)
        for one in batch:
            if self.each_s:
                await let_pass(self.each_s)
            if one.event.text in self.hangs:
                await self._hang()
            if one.event.text in self.broken:
                raise self.broken[one.event.text]
            self.got.append((one.id, one.event.text))
        return [(one.machine, Sent(one.event.text, one.id)) for one in batch]

    async def _hang(self) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if not self.stubborn:
                    raise

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.got]


class Order(Machine[Place | Sent | Status]):
    """A machine that emits a mail for each event, and notes the answers."""

    sent: Register[list[str]] = Register([])
    ids: Register[list[str]] = Register([])
    run = State(start=True)

    @run.on(Place)
    def place(self, e: Place) -> None:
        self.emit(Mails, Mail(e.text, e.size, bytes(e.size)))

    @run.on(Sent)
    def note(self, e: Sent) -> None:
        self.sent.append(e.text)
        self.ids.append(e.id)

    @run.on(Status)
    def status(self, e: Status) -> None:
        self.reply(e, self.sent)


SHOP = App("shop", [Order], plugins=[Mails])
