"""JSON merge patch (RFC 7386). Pure: nothing given is changed, what is kept is shared."""

from __future__ import annotations

from bokilib.records.codec import Json


def merged(target: Json, patch: Json) -> Json:
    """Return a value after a patch: objects are merged, null removes, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
