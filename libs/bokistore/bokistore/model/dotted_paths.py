"""Paths into an object: `a.b.0.c`. Pure.

Keys are separated by dots; a dot of a key is written `\\.`, a backslash `\\\\`. The empty path is the object itself, so no path has
an empty key alone; `a.` has one after `a`. In an array a key of digits is an index. Up to 64 keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, TypeAlias

from boki_common.errors import InvalidArgument

Keys: TypeAlias = tuple[str, ...]

DEPTH: Final = 64
_KEY: Final = re.compile(r"(?:[^.\\]|\\[.\\])*")
_ESCAPE: Final = re.compile(r"\\(.)")
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")


@lru_cache(maxsize=4_096)
def parse(path: str) -> Keys:
    """Return the keys of a path. Raises InvalidArgument."""
    if not isinstance(path, str):
        raise InvalidArgument(f"expected a path like 'a.b.0', found {type(path).__name__}")
    if path == "":
        return ()
    keys = []
    at = 0
    while True:
        found = _KEY.match(path, at)
        assert found is not None, "it matches nothing too"
        keys.append(_ESCAPE.sub(r"\1", found[0]))
        at = found.end()
        if at == len(path):
            break
        if path[at] != ".":
            raise InvalidArgument(
                f"expected '\\.' or '\\\\' for a dot or a backslash of a key, found {path[at : at + 2]!r} in {path!r:.80}"
            )
        at += 1
    if len(keys) > DEPTH:
        raise InvalidArgument(f"expected a path of up to {DEPTH} keys, found {len(keys)}", found=len(keys))
    return tuple(keys)


def join(keys: Iterable[str | int]) -> str:
    """Return the path of keys."""
    return ".".join(str(key).replace("\\", "\\\\").replace(".", "\\.") for key in keys)


def index_of(key: str) -> int | None:
    """Return the array index that a key names, or None."""
    return int(key) if _INDEX.fullmatch(key) else None
