"""An App by its name: `shop.flows:app`, as Python finds the module from where it runs."""

from __future__ import annotations

import importlib

from boki_common.errors import UsageError
from bokiflow.app import App


def named_app(name: str) -> App:
    """Imports its module. Raises UsageError; what the module raises."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise UsageError(f"expected MODULE:NAME of an app, such as shop.flows:app, found {name!r}", found=name)
    try:
        found: object = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as fault:
        raise UsageError(f"the app {name!r} cannot be found from here: {fault}", found=name) from fault
    if not isinstance(found, App):
        raise UsageError(f"expected a bokiflow.App under {name!r}, found {type(found).__name__}", found=name)
    return found
