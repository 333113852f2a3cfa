"""Reliable state machines on a LogBook: each event is handled exactly once, and what a handler changes and sends is one record.

Read the rooms in this order: `model` (records and the rules that read them), `machine` (the language, and the core that runs a handler).
"""

from bokirsm.errors import (
    CommitTooLarge,
    DeclarationError,
    EndlessHandler,
    HandlerAwaited,
    IdReused,
    MachineFaulted,
    NoSuchMachine,
    Refused,
    UndeclaredField,
    UnhandledEvent,
    WrongCall,
)
from bokirsm.machine.app import App
from bokirsm.machine.fields import Register, Table, Volatile
from bokirsm.machine.machine import Machine
from bokirsm.machine.refs import Ref
from bokirsm.machine.states import State
from bokirsm.machine.values import Ask, Event

__all__ = [
    "App",
    "Ask",
    "CommitTooLarge",
    "DeclarationError",
    "EndlessHandler",
    "Event",
    "HandlerAwaited",
    "IdReused",
    "Machine",
    "MachineFaulted",
    "NoSuchMachine",
    "Ref",
    "Refused",
    "Register",
    "State",
    "Table",
    "UndeclaredField",
    "UnhandledEvent",
    "Volatile",
    "WrongCall",
]
