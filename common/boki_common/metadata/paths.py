"""Rules for the arguments of a metadata store, the same in every implementation.

A path is absolute, its parts are non-empty, none is `.` or `..`, and no part holds a character that ZooKeeper refuses
(control characters, surrogates, private use). The root `/` exists always and is never made or deleted. What one
implementation refuses, all refuse, so that a program which runs on SQLite also runs on ZooKeeper. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from boki_common import limits
from boki_common.errors import BadVersion, InvalidArgument, NotEmpty

ROOT: Final = "/"
PATH_BYTES: Final = 1_024
"""A bound of ours: the longest path Boki makes has about 100 bytes."""
SEQUENCE_DIGITS: Final = 10

CREATED_MAX: Final = 256
"""Nodes that one write may make: a request stays small."""

_REFUSED: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


def check_path(path: str) -> None:
    """Raises InvalidArgument unless `path` may name a node."""
    if path != ROOT:
        _check(path, path.removeprefix("/").split("/"))


def check_new_path(path: str) -> None:
    """Raises InvalidArgument unless a node may be made at `path` or deleted there."""
    if path == ROOT:
        raise InvalidArgument("the root / is always there: expected a path below it", path=path)
    check_path(path)


def check_node(path: str, value: bytes) -> None:
    """Raises InvalidArgument unless a node of that value may be made at `path`."""
    check_new_path(path)
    check_value(value, path)


def check_prefix(prefix: str, value: bytes) -> None:
    """Raises InvalidArgument unless `prefix` with digits behind it may name a node of that value; it may end in a slash."""
    check_new_path(prefix + "0" * SEQUENCE_DIGITS)
    check_value(value, prefix)


def check_value(value: bytes, path: str) -> None:
    """Raises InvalidArgument for a value over `limits.METADATA_VALUE_BYTES`."""
    if len(value) > limits.METADATA_VALUE_BYTES:
        raise InvalidArgument(
            f"expected a metadata value of at most {limits.METADATA_VALUE_BYTES} bytes at {path}, found {len(value)}",
            path=path,
            found=len(value),
        )


def check_set(path: str, value: bytes, version: int, created: Mapping[str, bytes]) -> None:
    """Raises InvalidArgument unless one write may set the value, and make these nodes."""
    check_path(path)
    check_value(value, path)
    check_version(version, path)
    if len(created) > CREATED_MAX:
        raise InvalidArgument(
            f"expected at most {CREATED_MAX} nodes in one write, found {len(created)}: make them in several"
        )
    for new, new_value in created.items():
        check_node(new, new_value)


def check_delete(path: str, version: int) -> None:
    """Raises InvalidArgument unless a node may be deleted at `path`, at that version."""
    check_new_path(path)
    check_version(version, path)


def check_version(version: int, path: str) -> None:
    """Raises InvalidArgument for a negative version: ZooKeeper would take it for *any version*."""
    if version < 0:
        raise InvalidArgument(f"expected the version of {path} to compare with, found {version}", path=path)


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or ROOT


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


def sequential_path(prefix: str, number: int) -> str:
    return f"{prefix}{number:0{SEQUENCE_DIGITS}d}"


def check_at_version(path: str, expected: int, found: int) -> None:
    """Raises BadVersion unless the node is at the expected version."""
    if found != expected:
        raise BadVersion(
            f"expected version {expected} of {path}, found {found}: read it again",
            path=path,
            expected=expected,
            found=found,
        )


def no_children_allowed(path: str) -> InvalidArgument:
    return InvalidArgument(f"{parent_of(path)} is ephemeral and cannot have the child {name_of(path)}", path=path)


def not_empty(path: str) -> NotEmpty:
    return NotEmpty(f"{path} has children: delete them first", path=path)


def _check(path: str, parts: list[str]) -> None:
    fault = ""
    if not path.startswith("/"):
        fault = "it does not begin with /"
    elif "" in parts:
        fault = "it has an empty part or a trailing /"
    elif "." in parts or ".." in parts:
        fault = "it has a part . or .."
    elif _REFUSED.search(path):
        fault = "it has a control or private character"
    elif len(path.encode(errors="surrogatepass")) > PATH_BYTES:
        fault = f"it is over {PATH_BYTES} bytes"
    if fault:
        raise InvalidArgument(f"expected an absolute metadata path such as /boki/view, found {path[:200]!r}: {fault}")
