"""Arguments and results as JSON. Pure. As `bokilib.records.codec`, and tuples are lists: functions return several values, and take them."""

from __future__ import annotations

from typing import Any

import msgspec

from bokilib.records.codec import Json, check_json, dump_model, to_json


def as_json(value: object) -> Json:
    """A value of a user's type as JSON. Raises NotEncodable."""
    if type(value) in (str, int, bool, type(None)):
        return check_json(value)
    try:
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=dump_model)
    except (TypeError, ValueError, RecursionError):
        return to_json(value)  # the error names what is wrong
    return check_json(_lists(plain))


def _lists(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_lists(one) for one in value]
    if isinstance(value, dict):
        return {key: _lists(one) for key, one in value.items()}
    return value
