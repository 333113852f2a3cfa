"""An app: the classes of machines of one program, under a name. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from boki_common.errors import InvalidArgument
from bokirsm.errors import DeclarationError
from bokirsm.machine.declaration import Declaration, declaration_of
from bokirsm.machine.machine import Machine

NAME_CHARS: Final = 60


class App:
    """The classes of machines of a program.

    Attributes:
        name: the group of the machines, in one book. All hosts of a group should have the same classes; a host leaves machines of classes
            that it does not know to others.
        machines: the declarations of the classes, by stored name.
    """

    def __init__(self, name: str, machines: Sequence[type[Machine[Any]]]) -> None:
        """Name the classes of an app.

        Raises:
            InvalidArgument: the name is empty, too long, or has a slash or colon.
            DeclarationError: two classes have one stored name.
        """
        if not isinstance(name, str) or not 1 <= len(name) <= NAME_CHARS or "/" in name or ":" in name:
            raise InvalidArgument(
                f"expected the name of an app, 1 to {NAME_CHARS} characters without slash and colon, found {name!r:.80}"
            )
        self.name: Final = name
        self.machines: Final[dict[str, Declaration]] = {}
        for cls in machines:
            one = declaration_of(cls)
            known = self.machines.setdefault(one.kind, one)
            if known.cls is not cls:
                raise DeclarationError(
                    f"expected stored names of machines to differ, found {one.kind!r} for {known.cls.__qualname__} "
                    f"and {cls.__qualname__}: give one of them name=…"
                )

    def declaration(self, cls: type[Machine[Any]]) -> Declaration:
        """Return the declaration of a class of this app.

        Raises:
            InvalidArgument: the class is not of this app.
        """
        one = declaration_of(cls)
        if self.machines.get(one.kind) is not one:
            raise InvalidArgument(
                f"expected a class of app {self.name!r} ({', '.join(self.machines)}), found {cls.__qualname__}: add it to App(…)"
            )
        return one
