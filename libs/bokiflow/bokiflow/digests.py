"""What two calls are compared by: a digest of their arguments. Pure.

Arguments of a workflow are JSON and always have one. Those of a step may be anything (a client, an open file): only what is
JSON is compared, since the step is named by its place anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import xxhash

from bokiflow.plain import as_json
from bokilib.codec import Json
from bokilib.errors import NotEncodable

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
