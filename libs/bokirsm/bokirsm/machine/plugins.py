"""Plugins: what a machine emits leaves the log by one, and its answers come back as events. Pure: hosts call them.

    class Emails(Plugin[Mail]):
        async def deliver(self, batch: Sequence[Delivery[Mail]]) -> Answers:
            for one in batch:
                await self.smtp.send(one.event.to, one.event.text, message_id=one.id)
            return [(one.machine, Sent(one.event.order)) for one in batch]

    self.emit(Emails, Mail(…))                                  # in a handler
    app = App("shop", [Order], plugins=[Emails])                # the declaration
    host = Host(app, book, plugins=[Emails(smtp)])              # the object that does it

- An output is delivered once the commit of its handler is in the log, at least once: after a crash, or when its partition moves, again with
  the same id. A plugin that tells the other side the id, or notes it there, makes that once.
- The outputs of a partition are delivered in order, to each plugin for itself. Those of one machine stay in order whatever fails.
- Answers are events to machines. They, and the fact that the outputs are delivered, are one record: an output is answered once.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

from bokirsm.errors import DeclarationError, WrongCall
from bokirsm.machine.declaration import accepted_events
from bokirsm.machine.refs import Ref
from bokirsm.machine.values import Codec, Event, codec_of

O = TypeVar("O")  # noqa: E741 - an output
O_co = TypeVar("O_co", covariant=True)

Answers: TypeAlias = Iterable[tuple[Ref[Any], Any]] | None
"""Events to machines of the app, each with its machine, as for `Rsm.send_many`; None for none."""

TIMEOUT_S: Final = 30.0
MOST: Final = 16
"""One after the other, they have about two seconds each."""


class Delivery(Generic[O_co]):
    """An output that a plugin delivers.

    Attributes:
        id: its id, the same in each attempt, by whichever host. No other output of the book has it.
        machine: the machine that emitted it.
        event: the output.
        attempt: the number of this attempt in this host, from 1.
    """

    __slots__ = ("attempt", "event", "id", "machine")

    def __init__(self, id: str, machine: Ref[Any], event: O_co, attempt: int) -> None:
        self.id: Final = id
        self.machine: Final = machine
        self.event: Final[O_co] = event
        self.attempt: Final = attempt

    def __repr__(self) -> str:
        return f"Delivery({self.id!r}, {self.machine!r}, {self.event!r}, attempt={self.attempt})"


class PluginDeclaration:
    """The declaration of one class of plugins.

    Attributes:
        name: the stored name of the plugin.
        cls: the class.
        events: the encodings of the events that it delivers, by stored name.
        accepts: these events, likewise.
        timeout_s: seconds that one call of `deliver` may take.
        most: outputs in one call.
    """

    def __init__(self, cls: type, name: str, accepted: Any, timeout_s: float, most: int) -> None:
        """Read a class.

        Raises:
            DeclarationError: the class cannot work.
        """
        _check_deliver(cls)
        if not timeout_s > 0 or most < 1:
            raise DeclarationError(
                f"expected timeout_s= above 0 and most= of at least 1, found {timeout_s!r} and {most!r}"
            )
        self.name: Final = name
        self.cls: Final = cls
        self.timeout_s: Final = timeout_s
        self.most: Final = most
        self.accepts: Final = dict(accepted_events(cls, accepted))
        self.events: Final[dict[str, Codec]] = {
            one: codec_of(event, f"{cls.__name__}: {event.__name__}") for one, event in self.accepts.items()
        }


class Plugin(Generic[O]):
    """Base class of plugins; `Plugin[Mail | Sms]` is one that delivers two kinds of events. See the module.

    Options of a class: `class Emails(Plugin[Mail], name="emails", timeout_s=10, most=20)`. `name`: its stored name, by default that of the
    class. `timeout_s`: seconds that one call may take, 30. `most`: outputs in one call, 16. A subclass of a class that names its events is
    the same plugin, done in another way: for tests.
    """

    declaration: ClassVar[PluginDeclaration]
    """What the class declares; absent in classes that accept a type variable."""

    def __init_subclass__(
        cls, *, name: str | None = None, timeout_s: float | None = None, most: int | None = None, **options: Any
    ) -> None:
        super().__init_subclass__(**options)
        accepted, before = _accepted_by(cls), getattr(cls, "declaration", None)
        if accepted is not None:
            cls.declaration = PluginDeclaration(
                cls,
                name or cls.__name__,
                accepted,
                TIMEOUT_S if timeout_s is None else timeout_s,
                MOST if most is None else most,
            )
        elif isinstance(before, PluginDeclaration) and (name, timeout_s, most) != (None, None, None):
            raise DeclarationError(
                f"expected no name=, timeout_s= or most= for {cls.__name__}, which is the plugin {before.name!r} done in another way: "
                f"give them where {before.cls.__name__} is declared"
            )
        elif isinstance(before, PluginDeclaration):
            _check_deliver(cls)

    async def deliver(self, batch: Sequence[Delivery[O]]) -> Answers:
        """Deliver outputs, in order, and return the answers.

        If it raises an error or takes too long, none of the batch counts as delivered: it is called again, after a pause, also with fewer
        outputs. It runs in the event loop of the host: what blocks goes through `asyncio.to_thread`.
        """
        raise NotImplementedError


def _check_deliver(cls: type) -> None:
    deliver = getattr(cls, "deliver", None)
    if not inspect.iscoroutinefunction(deliver) or deliver is Plugin.deliver:
        raise DeclarationError(
            f"expected {cls.__name__} to have a method `async def deliver(self, batch)`, found none: it is called with outputs"
        )


def _accepted_by(cls: type) -> Any:
    """Return the events that a class names; None if it names a type variable or none."""
    for base in vars(cls).get("__orig_bases__", ()):
        origin = typing.get_origin(base)
        if isinstance(origin, type) and issubclass(origin, Plugin):
            (accepted,) = typing.get_args(base)
            return None if isinstance(accepted, TypeVar) else accepted
    return None


def plugin_of(cls: object) -> PluginDeclaration:
    """Return the declaration of a class of plugins.

    Raises:
        WrongCall: it is none.
    """
    declared = getattr(cls, "declaration", None)
    if not isinstance(cls, type) or not isinstance(declared, PluginDeclaration):
        raise WrongCall(f"expected a class of plugins, found {cls!r:.80}")
    return declared


def check_output(plugin: PluginDeclaration, event: object) -> None:
    """Check that a plugin delivers an event.

    Raises:
        WrongCall: it does not.
    """
    if not isinstance(event, Event) or type(event) not in plugin.accepts.values():
        raise WrongCall(
            f"expected an event that {plugin.cls.__name__} delivers ({', '.join(plugin.accepts)}), found {event!r:.80}"
        )
