"""Monitors: they watch a run, and say what must never happen, and what must happen in the end.

    class NoMoneyLost(Monitor, observes=(Withdrawn, Deposit)):
        def committed(self, machine: Seen) -> None:
            assert sum(one.balance for one in self.machines(Account)) <= 300

    class TransfersEnd(Monitor, observes=(Transfer, Done)):
        def taken(self, event, by):
            if isinstance(event, Transfer): self.hot("a transfer is not done")

        def sent(self, event, to):
            if isinstance(event, Done): self.cold()

- Each run has a new one of each monitor. It sees no values but those of its arguments and `machines`.
- A monitor that is *hot* waits for something. A run that ends so has a fault, and so has one in which a monitor is hot for half of the
  steps that a run may have, if the strategy is fair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final

from bokirsm.errors import UndeclaredField
from bokirsm.machine.declaration import Declaration
from bokirsm.machine.fields import Register, Table
from bokirsm.machine.machine import Machine
from bokirsm.machine.refs import Ref
from bokirsm.machine.values import Event
from bokirsm.model.machine_state import MachineState


class SeenMachine:
    """A machine as a monitor sees it, after its last commit: `machine.balance` is its register or table of that name.

    Attributes:
        ref: the machine.
        cls: its class.
        state: the name of its state; "" if it has halted.
    """

    __slots__ = ("_declaration", "_state", "cls", "ref")

    def __init__(self, ref: Ref[Any], declaration: Declaration, state: MachineState) -> None:
        self.ref: Final = ref
        self.cls: Final = declaration.cls
        self._declaration: Final = declaration
        self._state: Final = state

    @property
    def state(self) -> str:
        """The name of its state; "" if it has halted."""
        return "" if self._state.halted else self._declaration.states[self._state.state].name

    def __getattr__(self, name: str) -> Any:
        field = getattr(self.cls, name, None)
        if isinstance(field, Register):
            data = self._state.registers.get(field.stored, field.default)
            return None if data is None else field.codec.decode(data)
        if isinstance(field, Table):
            rows = self._state.tables.get(field.stored, {})
            return {field.keys.decode(key): field.values.decode(value) for key, value in rows.items()}
        raise UndeclaredField(
            f"expected a register or table of {self.cls.__name__}, found {name!r}",
            machine=self.cls.__name__,
            field=name,
        )


class Monitor:
    """Base class of monitors; see the module. A method that raises an error, such as an assertion, is a fault."""

    observes: ClassVar[tuple[type[Event], ...]] = ()
    """The events that `sent`, `taken` and `announced` get."""
    heat = ""
    """The reason for which it is hot; "" if it is not."""
    hot_since = 0
    """The step in which it became hot."""
    step = 0
    """The present step."""
    _find: Callable[[], Iterator[SeenMachine]]

    def __init_subclass__(cls, *, observes: tuple[type[Event], ...] = (), **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.observes = (*cls.observes, *observes)

    def sent(self, event: Any, to: Ref[Any]) -> None:
        """See an event that a handler or program sent; a creation's first event too."""

    def taken(self, event: Any, by: Ref[Any]) -> None:
        """See an event whose handler committed."""

    def announced(self, event: Any, by: Ref[Any]) -> None:
        """See an event that a handler announced, by `self.announce`."""

    def committed(self, machine: SeenMachine) -> None:
        """See a machine after a commit."""

    def ended(self) -> None:
        """See the end of a run, in which nothing is left to handle."""

    def hot(self, reason: str) -> None:
        """Wait for something. `reason`: what is not there yet."""
        if not self.heat:
            self.hot_since = self.step
        self.heat = reason

    def cold(self) -> None:
        """Wait for nothing."""
        self.heat = ""

    def machines(self, *classes: type[Machine[Any]]) -> list[SeenMachine]:
        """Return all machines that were created, of some classes; in the order in which they were."""
        return [one for one in self._find() if not classes or issubclass(one.cls, classes)]

    def watch(self, find: Callable[[], Iterator[SeenMachine]]) -> None:
        """Begin to watch a run. `find`: returns its machines."""
        self._find = find
