"""Digests of arguments, by which two calls are compared. Pure.

Arguments of a workflow are JSON and always have a digest. Arguments of a step may be any objects (a client, an open file). They have a
digest only if they are JSON; the step's key, which is its place in the code, identifies the call anyway.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import msgspec
import xxhash

from bokiflow.model.json_values import as_json
from bokilib.errors import NotEncodable
from bokilib.records.codec import Json

V = TypeVar("V")
_encoder: Final = msgspec.json.Encoder(order="sorted")
NONE: Final = ""


def digest(value: Json) -> str:
    """Return the digest of JSON, which ignores the order of keys."""
    return xxhash.xxh3_64_hexdigest(_encoder.encode(value))


def digest_of_call(args: Sequence[Any], options: Mapping[str, Any]) -> str:
    """Return the digest of a step's arguments; "" if they are not JSON."""
    try:
        return digest(as_json([list(args), dict(options)]))
    except NotEncodable:
        return NONE


def copied(value: V) -> V:
    """Copy an argument of a step, so that the step and the workflow do not see each other's later changes.

    Containers, dataclasses, Structs and models are copied; other objects (a client, an open file) are shared.
    """
    if isinstance(value, list | tuple | set | dict) and type(value) in (list, tuple, set, dict):
        if isinstance(value, dict):
            return cast(V, {copied(key): copied(item) for key, item in value.items()})
        return cast(V, type(value)(copied(item) for item in value))
    if isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value) or hasattr(value, "model_dump"):
        try:
            return copy.deepcopy(value)
        except Exception:  # noqa: BLE001 - it contains an object that cannot be copied, and is shared like that object
            return value
    return value
