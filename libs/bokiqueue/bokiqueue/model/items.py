"""Messages of users, encoded for a push and decoded again. Pure.

The body of a message is JSON (`bokilib.records.codec`), made of any type that msgspec knows or of a pydantic model. It is
checked before anything is sent.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from boki_common.errors import BokiError, InvalidArgument
from bokilib.errors import NotEncodable
from bokilib.records.arguments import check_number, check_text
from bokilib.records.codec import Json, from_json, stored_json
from bokilib.stacks import described, shown
from bokiqueue.model.events import Item
from bokiqueue.model.priority_rules import check_priority

T = TypeVar("T")

DELAY_MOST_S: Final = 900.0
"""The longest delay: a waiting message keeps its shard's storage. A later time is for a timer of a workflow."""
NAME_CHARS: Final = 200
"""The longest time that a setting names, so that it is a whole number of milliseconds in 64 bits."""
REASON_CHARS: Final = 16_384
"""The longest reason of a dead letter, which has it beside the message in one record."""
GROUP: Final = "default"

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder()


def check_name(name: str, what: str, *, slash: bool = True) -> str:
    """Return a name that is valid.

    Args:
        what: "queue", "group" or "key", for the error.
        slash: True if the name may contain a slash.

    Raises:
        InvalidArgument: the name is no text that UTF-8 can encode, empty, too long, or has a slash.
    """
    check_text(f"a {what}", name)
    if not 1 <= len(name) <= NAME_CHARS or (not slash and "/" in name):
        more = "" if slash else ", none of them a slash"
        raise InvalidArgument(
            f"expected a {what} of 1 to {NAME_CHARS} characters{more}, found {shown(name)}", found=name
        )
    return name


def check_reason(reason: str) -> str:
    """Return the reason of a dead letter.

    Raises:
        InvalidArgument: it is no text that UTF-8 can encode, or too long.
    """
    if len(check_text("a reason", reason)) > REASON_CHARS:
        raise InvalidArgument(
            f"expected a reason of up to {REASON_CHARS:,} characters, found {len(reason):,}: {shown(reason)}",
            expected=REASON_CHARS,
            found=len(reason),
        )
    return reason


def delay_ms(delay_s: float) -> int:
    """Return a delay in milliseconds.

    Raises:
        InvalidArgument: it is no number, negative or too long.
    """
    if not 0 <= check_number("a delay in seconds", delay_s) <= DELAY_MOST_S:
        raise InvalidArgument(
            f"expected a delay of 0 to {DELAY_MOST_S:.0f} seconds, found {delay_s!r}; use a timer of a workflow for more",
            found=delay_s,
        )
    return round(delay_s * 1000)


def item_of(
    body: object,
    kind: Any = object,
    *,
    key: str | None = None,
    dedup_id: str | None = None,
    delay_s: float = 0.0,
    priority: int = 0,
) -> Item:
    """Return a message to push. `kind`: the type as which it will be read.

    Raises:
        NotEncodable: the body is no JSON, or would be read as another value.
        InvalidArgument: an option is out of range, or a key was given with a delay.
    """
    for name, value in (("key", key), ("dedup_id", dedup_id)):
        if value is not None:
            check_name(value, name)
    if key is not None and delay_s:
        raise InvalidArgument(
            "expected key= or delay_s=, found both: messages of a key are handled in the order of their pushes"
        )
    raw = msgspec.Raw(_encoder.encode(stored_json(kind, body)))
    return Item(raw, key, dedup_id, delay_ms(delay_s), None, check_priority(priority))


def json_of(item: Item) -> Json:
    """Return the body of a message as JSON."""
    found: Json = _decoder.decode(item.body)
    return found


def body_of(kind: type[T], item: Item) -> T:
    """Return the body of a message as its type.

    Raises:
        NotEncodable: it does not fit the type, or the type raised an error; the text says where, or which.
    """
    try:
        return from_json(kind, json_of(item))
    except (BokiError, MemoryError):
        raise
    except Exception as error:
        name = getattr(kind, "__name__", str(kind))
        raise NotEncodable(f"what is stored is no {name}: {described(error)}; was the type changed?") from error
