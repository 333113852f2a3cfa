"""An app: the classes of machines of one program, and of the plugins that they emit to, under a name. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from boki_common.errors import InvalidArgument
from bokirsm.errors import DeclarationError
from bokirsm.machine.declaration import Declaration, declaration_of
from bokirsm.machine.machine import Machine
from bokirsm.machine.plugins import Plugin, PluginDeclaration, plugin_of

NAME_CHARS: Final = 60


class App:
    """The classes of machines of a program.

    Attributes:
        name: the group of the machines, in one book. All hosts of a group should have the same classes; a host leaves machines of classes
            that it does not know to others.
        machines: the declarations of the classes, by stored name.
        plugins: the declarations of the plugins that they emit to, by stored name.
    """

    def __init__(
        self, name: str, machines: Sequence[type[Machine[Any]]], *, plugins: Sequence[type[Plugin[Any]]] = ()
    ) -> None:
        """Name the classes of an app.

        Args:
            name: of the app.
            machines: the classes of its machines.
            plugins: the classes of plugins that these emit to. Each host gets an object of each.

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
        self.plugins: Final[dict[str, PluginDeclaration]] = {}
        for plugin in plugins:
            declared = plugin_of(plugin)
            other = self.plugins.setdefault(declared.name, declared)
            if other is not declared:
                raise DeclarationError(
                    f"expected stored names of plugins to differ, found {declared.name!r} for {other.cls.__qualname__} "
                    f"and {declared.cls.__qualname__}: give one of them name=…"
                )

    def objects(self, plugins: Sequence[Plugin[Any]]) -> dict[str, Plugin[Any]]:
        """Return the objects that do the plugins of this app, by stored name.

        Raises:
            InvalidArgument: a plugin has no object, has two, or is not of this app.
        """
        found: dict[str, Plugin[Any]] = {}
        for one in plugins:
            if not isinstance(one, Plugin):
                raise InvalidArgument(f"expected objects of plugins, as in plugins=[Emails()], found {one!r:.80}")
            name = plugin_of(type(one)).name
            if self.plugins.get(name) is not plugin_of(type(one)) or name in found:
                raise InvalidArgument(
                    f"expected one object of each plugin of app {self.name!r} ({', '.join(self.plugins) or 'it has none'}), found "
                    f"{type(one).__qualname__}{' twice' if name in found else ': add the class to App(…, plugins=…)'}"
                )
            found[name] = one
        missing = [name for name in self.plugins if name not in found]
        if missing:
            raise InvalidArgument(
                f"expected an object of each plugin of app {self.name!r}, found none of {', '.join(missing)}: give the host plugins=[…]"
            )
        return found

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
