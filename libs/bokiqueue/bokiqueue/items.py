"""Messages of users as they are pushed, and back. Pure.

A message's body is JSON (`bokilib.codec`): whatever msgspec knows, and models of pydantic. It is checked before anything is sent.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from boki_common.errors import InvalidArgument
from bokilib.codec import Json, from_json, to_json
from bokiqueue.events import Item
from bokiqueue.priority_rules import check_priority

T = TypeVar("T")

DELAY_MOST_S: Final = 900.0
"""A message that waits keeps its shard's storage: a quarter of an hour, as elsewhere. What comes later is a timer of a workflow."""
NAME_CHARS: Final = 200
GROUP: Final = "default"

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder()


def check_name(name: str, what: str, *, slash: bool = True) -> str:
    """Raises InvalidArgument. Args: what: "queue" or "group". slash: whether it may have one."""
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_CHARS or (not slash and "/" in name):
        more = "" if slash else ", none of them a slash"
        raise InvalidArgument(
            f"expected a {what} of 1 to {NAME_CHARS} characters{more}, found {name!r:.80}", found=name
        )
    return name


def delay_ms(delay_s: float) -> int:
    """A delay in milliseconds. Raises InvalidArgument."""
    if not 0 <= delay_s <= DELAY_MOST_S:
        raise InvalidArgument(
            f"expected a delay of 0 to {DELAY_MOST_S:.0f} seconds, found {delay_s!r}; what comes later is a timer",
            found=delay_s,
        )
    return round(delay_s * 1000)


def item_of(
    body: object, *, key: str | None = None, dedup_id: str | None = None, delay_s: float = 0.0, priority: int = 0
) -> Item:
    """A message to push. Raises NotEncodable, InvalidArgument."""
    for name, value in (("key", key), ("dedup_id", dedup_id)):
        if value is not None:
            check_name(value, name)
    if key is not None and delay_s:
        raise InvalidArgument(
            "expected key= or delay_s=, found both: messages of a key are handled in the order of their pushes"
        )
    raw = msgspec.Raw(_encoder.encode(to_json(body)))
    return Item(raw, key, dedup_id, delay_ms(delay_s), None, check_priority(priority))


def json_of(item: Item) -> Json:
    """The body as JSON."""
    found: Json = _decoder.decode(item.body)
    return found


def body_of(kind: type[T], item: Item) -> T:
    """The body as its type. Raises NotEncodable, which names where it does not fit."""
    return from_json(kind, json_of(item))
