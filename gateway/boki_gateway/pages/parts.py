"""Parts that pages of libraries have in common: fields of forms, moments, lists of facts, JSON values. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from xml.etree.ElementTree import Element

from boki_gateway.pages.markup import Node, make
from boki_gateway.pages.texts import printable, value_text

VALUE_CHARS: Final = 100_000
"""Of a whole value; what is longer is cut, and says so."""


def field(name: str, value: str | None, **more: str | bool) -> Element:
    """A field of a form for text that no dictionary knows."""
    extra = {"autocomplete": "off", "spellcheck": "false", "autocapitalize": "off"} | more
    return make("input", type="text", name=name, id=f"ask-{name}", value=value or "", **extra)


def choice(name: str, value: str | None, options: Sequence[tuple[str, str]]) -> Element:
    """A field that has one of a few values, each with what people read."""
    made = [make("option", text, value=one, selected=one == (value or "")) for one, text in options]
    return make("select", *made, name=name, id=f"ask-{name}")


def moment(time_ms: int) -> Element:
    """When something was ordered, to the millisecond."""
    at = datetime.fromtimestamp(time_ms / 1000, UTC)
    exact = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return make("time", f"{at:%Y-%m-%d} ", make("b", f"{at:%H:%M:%S}"), datetime=exact, title=exact)


def facts(rows: Iterable[tuple[str, Node]]) -> Element:
    """Names and values, side by side; a region that is kept up to date."""
    made = [make("div", make("dt", name), make("dd", value)) for name, value in rows]
    return make("dl", *made, id="facts", class_="facts", data_region=True)


def json_block(value: Any, label: str, whole: str) -> Element:
    """A JSON value on lines of its own. `label`: what it is; `whole`: the command that prints all of it."""
    text = "\n".join(map(printable, value_text(value, indent=2).split("\n")))
    block = make("pre", text[:VALUE_CHARS], tabindex=0, role="region", aria_label=label)
    if len(text) <= VALUE_CHARS:
        return make("div", block)
    return make("div", block, make("p", f"Cut: it has {len(text):,} characters. `{whole}` prints all.", class_="note"))
