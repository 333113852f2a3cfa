"""Nodes of the metadata store with one JSON object: fields of all such objects, and their decoding.

`boki_common.metadata.json_nodes` reads and writes them.

{"version": 1, "token": "…", …}    a subclass of `JsonNode`; `version` is of its format, and the default of its class is the known one
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from boki_common.errors import DECODE_FAULTS, CorruptData

NO_NODE: Final = -1
"""The version of a node that is not there."""


class JsonNode(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of every such node. All fields of a subclass have defaults."""

    version: int = 1
    """Of the format."""
    token: str = ""
    """Of the write: random, so that the writer recognises it."""


N = TypeVar("N", bound=JsonNode)


def decode_node(kind: type[N], value: bytes, path: str, *, what: str) -> N:
    """Decode the value of a node.

    Args:
        what: such a node is, for the error: "the mark of a bookie".

    Raises:
        CorruptData: it is none, or one of a later version.
    """
    try:
        node = msgspec.json.decode(value, type=kind)
    except DECODE_FAULTS as error:
        raise CorruptData(f"expected {what} in {path}, found {value[:100]!r}: {error}") from error
    known = kind().version
    if node.version != known:
        raise CorruptData(f"expected version {known} of {what} in {path}, found {node.version}", found=node.version)
    return node
