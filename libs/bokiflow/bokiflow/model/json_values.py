"""Arguments and results as JSON: `bokilib.records.codec`, with tuples as lists, since functions take and return several values. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from bokilib.records.codec import Json, check_json, dump_model, to_json


def as_json(value: object) -> Json:
    """Return a value of a user's type as JSON. Raises NotEncodable."""
    if type(value) in (str, int, bool, type(None)):
        return check_json(value)
    try:
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=dump_model)
    except (TypeError, ValueError, RecursionError):
        return to_json(value)  # raises an error that names the wrong value
    return check_json(_lists(plain))


def _lists(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_lists(one) for one in value]
    if isinstance(value, dict):
        return {key: _lists(one) for key, one in value.items()}
    return value
