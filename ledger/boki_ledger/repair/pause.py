"""The pause of repair: a person's word for all controllers, which outlives them.

    /boki/repair    JSON: {"version": 1, "token": "…", "paused": true, "reason": "network works"}; without a node repair is not paused

While it is paused, controllers look and report as with `observe`: nothing is copied, no bookie is retired, no log is rolled. A ledger
that is being repaired is finished first. Each write is a compare-and-swap with a token of its own, so lost answers are settled.
"""

from __future__ import annotations

from typing import Final

from boki_common.errors import BadVersion, InvalidArgument
from boki_common.json_node import JsonNode
from boki_common.metadata.json_nodes import read_node, write_node
from boki_common.metadata.store import MetadataStore
from boki_common.runtime.ports import Random

PAUSE_PATH: Final = "/boki/repair"
WHAT: Final = "a pause of repair"
REASON_LIMIT: Final = 1_000
"""Characters."""


class Pause(JsonNode, frozen=True, kw_only=True):
    """See the module."""

    paused: bool = False
    reason: str = ""
    """For people."""


async def read_pause(store: MetadataStore) -> Pause:
    """Return what was said last. Raises CorruptData, MetadataUnavailable."""
    return (await read_node(store, Pause, PAUSE_PATH, what=WHAT))[0]


async def write_pause(store: MetadataStore, *, paused: bool, reason: str = "", rng: Random) -> Pause:
    """Pause or resume repair, whatever was said before. Raises InvalidArgument: the reason is too long. MetadataUnavailable: nothing was
    sent. MetadataUnknown: it may land later."""
    if len(reason) > REASON_LIMIT:
        raise InvalidArgument(f"expected a reason of {REASON_LIMIT} characters at most, found {len(reason)}")
    wanted = Pause(paused=paused, reason=reason if paused else "")
    while True:  # each lost race is another person's word
        _, version = await read_node(store, Pause, PAUSE_PATH, what=WHAT)
        try:
            written, _ = await write_node(store, PAUSE_PATH, wanted, version=version, rng=rng)
        except BadVersion:
            continue
        return written
