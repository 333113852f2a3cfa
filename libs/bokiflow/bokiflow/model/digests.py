"""What two calls are compared by: a digest of their arguments. Pure.

Arguments of a workflow are JSON and always have one. Those of a step may be anything (a client, an open file): only what is
JSON is compared, since the step is named by its place anyway.
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
    """Of JSON; the order of keys does not count."""
    return xxhash.xxh3_64_hexdigest(_encoder.encode(value))


def digest_of_call(args: Sequence[Any], options: Mapping[str, Any]) -> str:
    """Of a step's arguments; "" where they are not JSON."""
    try:
        return digest(as_json([list(args), dict(options)]))
    except NotEncodable:
        return NONE


def copied(value: V) -> V:
    """Copy an argument of a step, so that neither the step nor the workflow sees what the other changes in it later.

    Containers, dataclasses, Structs and models are copied; other objects (a client, an open file) are shared.
    """
    if isinstance(value, list | tuple | set | dict) and type(value) in (list, tuple, set, dict):
        if isinstance(value, dict):
            return cast(V, {copied(key): copied(item) for key, item in value.items()})
        return cast(V, type(value)(copied(item) for item in value))
    if isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value) or hasattr(value, "model_dump"):
        try:
            return copy.deepcopy(value)
        except Exception:  # noqa: BLE001 - it holds something that has no copy, and is shared as such objects are
            return value
    return value
