"""Apps by name, such as `shop.flows:app`; Python looks for the module as in any program of this folder."""

from __future__ import annotations

import importlib
import traceback
from types import ModuleType

from boki_common.errors import UsageError
from bokiflow.client.app import App


def named_app(name: str) -> App:
    """Import the module of an app, and return the app.

    Raises:
        UsageError: the module cannot be found, its import raises any error, or it has no app of that name.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise UsageError(f"expected MODULE:NAME of an app, such as shop.flows:app, found {name!r}", found=name)
    found: object = _imported(module, name)
    try:
        for part in attribute.split("."):
            found = getattr(found, part)
    except AttributeError as fault:
        raise UsageError(f"the app {name!r} cannot be found from here: {fault}", found=name) from fault
    if not isinstance(found, App):
        raise UsageError(f"expected a bokiflow.App under {name!r}, found {type(found).__name__}", found=name)
    return found


def _imported(module: str, name: str) -> ModuleType:
    """Import the module of an app. Any error that its code raises, also SystemExit, is a fault of the user's program."""
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as fault:
        if isinstance(fault, ModuleNotFoundError) and fault.name and f"{module}.".startswith(f"{fault.name}."):
            raise UsageError(f"the app {name!r} cannot be found from here: {fault}", found=name) from fault
        text = fault.msg if isinstance(fault, SyntaxError) else str(fault)
        raise UsageError(
            f"importing {module!r} failed: {type(fault).__name__}: {text}{_place(fault, module)}", found=name
        ) from fault


def _place(fault: BaseException, module: str) -> str:
    """Return where the code of a module, or of its package, raised an error: " (FILE, line N)"; "" if that is not known."""
    if isinstance(fault, SyntaxError) and fault.filename:
        return f" ({fault.filename}, line {fault.lineno})"
    package, place = module.partition(".")[0], ""
    for frame, line in traceback.walk_tb(fault.__traceback__):
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == package:
            place = f" ({frame.f_code.co_filename}, line {line})"
    return place
