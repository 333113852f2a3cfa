"""Which slots each engine indexes: as its membership says, and which slots too few of them serve. Pure.

    index_slots    "all", or ranges as 0-511,768-1023; without it an engine indexes all

An engine serves a book only if it indexes the book's slot; it forwards calls about others to one that does. So every slot
needs an engine, and two of them for one to be lost without a pause. An engine says it once, when it lists itself; with other
slots it is another engine, which reads the logs anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from boki_common.errors import InvalidArgument
from boki_metalog.terms.slot_rules import parse_slots, slots_text
from boki_metalog.terms.term_order import ALL_SLOTS, slot_mask

ENGINE_ROLE: Final = "engine"
EVERY_SLOT: Final = "all"
SERVING_ENGINES: Final = 2
"""So many engines should index each slot, if there are so many."""


class EngineMember(NamedTuple):
    """An engine that is listed; `slots` as the bits of one number."""

    incarnation: str
    addresses: tuple[str, ...]
    slots: int
    outside: tuple[str, ...] = ()
    """Where SDKs of another network reach it."""


def parse_index_slots(text: str) -> int:
    """Slots as the bits of one number. Raises InvalidArgument."""
    if text == EVERY_SLOT:
        return ALL_SLOTS
    mask = slot_mask((slot, slot) for slot in parse_slots(text))
    if not mask:
        raise InvalidArgument(f"expected {EVERY_SLOT!r} or slots such as 0-511,768-1023, found {text!r}", found=text)
    return mask


def index_slots_text(slots: int) -> str:
    """The reverse of `parse_index_slots`."""
    return EVERY_SLOT if slots == ALL_SLOTS else slots_text(_ranges(slots))


def _ranges(slots: int) -> Iterator[tuple[int, int]]:
    slot = 0
    while slots >> slot:
        if slots >> slot & 1:
            first = slot
            while slots >> slot & 1:
                slot += 1
            yield first, slot - 1
        else:
            slot += 1


def engine_members(listed: Mapping[str, Mapping[str, Any]]) -> list[EngineMember]:
    """Engines as the membership lists them, by incarnation. One whose slots nobody understands indexes none."""
    found = []
    for incarnation, value in sorted(listed.items()):
        try:
            slots = parse_index_slots(str(value.get("index_slots", EVERY_SLOT)))
        except InvalidArgument:
            slots = 0  # of a later version
        inside, outside = (tuple(map(str, value.get(key, ()))) for key in ("addresses", "outside"))
        found.append(EngineMember(incarnation, inside, slots, outside))
    return found


def thin_slots(engines: Iterable[EngineMember]) -> tuple[str, str]:
    """(slots that no engine serves, slots that only one serves although there are more), each "" if there are none.

    Without any engine nothing is to be said of slots.
    """
    members = list(engines)
    if not members:
        return "", ""
    once = twice = 0
    for member in members:
        twice |= once & member.slots
        once |= member.slots
    none = ALL_SLOTS & ~once
    one = once & ~twice if len(members) >= SERVING_ENGINES else 0
    return (slots_text(_ranges(none)) if none else ""), (slots_text(_ranges(one)) if one else "")
