"""HTML as a tree of elements: what is put into it is text, and never becomes markup. Pure.

    make("p", "by ", make("b", name), class_="by")          <p class="by">by <b>…</b></p>

In names of attributes `_` is `-`, and one at the end is left out (`class_`, `for_`). True is an attribute without a value; None and False
are none. The standard library writes the tree.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias
from urllib.parse import urlencode
from xml.etree.ElementTree import Element, tostring

Node: TypeAlias = "Element | str | None"
"""A child: an element, a text, or nothing."""
RAW: Final = frozenset({"script", "style"})
"""Elements whose text is not escaped when it is written: they get none."""


def make(name: str, /, *children: Node, **attributes: str | int | bool | None) -> Element:
    """An element."""
    element = Element(name)
    for key, value in attributes.items():
        if value is not None and value is not False:
            element.set(key.rstrip("_").replace("_", "-"), "" if value is True else str(value))
    return put(element, children)


def put(element: Element, children: Iterable[Node]) -> Element:
    """Adds children to an element; returns it."""
    for child in children:
        if isinstance(child, str):
            assert element.tag not in RAW, "its text would be taken as it is"
            if len(element):
                element[-1].tail = (element[-1].tail or "") + child
            else:
                element.text = (element.text or "") + child
        elif child is not None:
            assert not child.tail, "an element has one place"
            element.append(child)
    return element


def render(element: Element) -> str:
    """The element as HTML."""
    return tostring(element, encoding="unicode", method="html")


def address(path: str, **query: str | int | None) -> str:
    """A path with a query, whatever is in its values; those that are None are left out."""
    asked = urlencode({name: value for name, value in query.items() if value is not None})
    return f"{path}?{asked}" if asked else path
