"""Reliable state machines on a LogBook: each event is handled exactly once, and what a handler changes and sends is one record.

    async with Host(App("words", [Counter, Max]), client.book("b"), name="host-1") as host:
        counter = await host.create(Counter, Init(await host.create(Max, key="max")), key="c-1")
        print(await host.ask(Word("a").to(counter)))

Read the rooms in this order: `model` (records and the rules that read them), `machine` (the language, and the core that runs a handler),
`plugins` (what leaves the log), `lane` (the machines of one process), `client` (machines from outside), then `host`, which joins them.
"""

from bokirsm.client.rsm import Rsm
from bokirsm.errors import (
    AnswerTimeout,
    CommitTooLarge,
    DeclarationError,
    EndlessHandler,
    HandlerAwaited,
    IdReused,
    InboxFull,
    MachineFaulted,
    NoSuchMachine,
    Refused,
    UndeclaredField,
    UnexpectedAnswer,
    UnhandledEvent,
    WrongCall,
)
from bokirsm.host import Host
from bokirsm.lane.carrying import carried
from bokirsm.machine.app import App
from bokirsm.machine.fields import Register, Table, Volatile
from bokirsm.machine.machine import Machine
from bokirsm.machine.plugins import Answers, Delivery, Plugin
from bokirsm.machine.refs import Ref
from bokirsm.machine.states import State
from bokirsm.machine.values import Ask, Event

__all__ = [
    "AnswerTimeout",
    "Answers",
    "App",
    "Ask",
    "CommitTooLarge",
    "DeclarationError",
    "Delivery",
    "EndlessHandler",
    "Event",
    "HandlerAwaited",
    "Host",
    "IdReused",
    "InboxFull",
    "Machine",
    "MachineFaulted",
    "NoSuchMachine",
    "Plugin",
    "Ref",
    "Refused",
    "Register",
    "Rsm",
    "State",
    "Table",
    "UndeclaredField",
    "UnexpectedAnswer",
    "UnhandledEvent",
    "Volatile",
    "WrongCall",
    "carried",
]
