"""The pause of repair: a person's word for all controllers, which outlives them.

    /boki/repair    JSON: {"version": 1, "token": "…", "paused": true, "reason": "network works"}; without a node repair is not paused

While it is paused, controllers look and report as with `observe`: nothing is copied, no bookie is retired, no log is rolled. A ledger
that is being repaired is finished first. Each write is a compare-and-swap with a token of its own, so lost answers are settled.
"""

from __future__ import annotations

from typing import Final

import msgspec

from boki_common.errors import DECODE_FAULTS, BadVersion, CorruptData, InvalidArgument, NodeExists, NoNode
from boki_common.metadata.settle import compare_and_set, create_settled
from boki_common.metadata.store import MetadataStore, ensure_path
from boki_common.runtime.ports import Random

PAUSE_PATH: Final = "/boki/repair"
VERSION: Final = 1
TOKEN_BYTES: Final = 8
REASON_LIMIT: Final = 1_000
"""Characters."""


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """See the module."""

    version: int = VERSION
    token: str = ""
    paused: bool = False
    reason: str = ""
    """For people."""


async def read_pause(store: MetadataStore) -> Pause:
    """Return what was said last. Raises CorruptData, MetadataUnavailable."""
    return (await _read(store))[0]


async def write_pause(store: MetadataStore, *, paused: bool, reason: str = "", rng: Random) -> Pause:
    """Pause or resume repair, whatever was said before. Raises InvalidArgument: the reason is too long. MetadataUnavailable: nothing was
    sent. MetadataUnknown: it may land later."""
    if len(reason) > REASON_LIMIT:
        raise InvalidArgument(f"expected a reason of {REASON_LIMIT} characters at most, found {len(reason)}")
    wanted = Pause(token=rng.token(TOKEN_BYTES).hex(), paused=paused, reason=reason if paused else "")
    value = msgspec.json.encode(wanted)
    await ensure_path(store, PAUSE_PATH.rpartition("/")[0])
    while True:  # each lost race is another person's word
        try:
            _, version = await _read(store)
            if version is None:
                await create_settled(store, PAUSE_PATH, value)
            else:
                await compare_and_set(store, PAUSE_PATH, value, version=version)
        except (BadVersion, NodeExists):
            continue
        return wanted


async def _read(store: MetadataStore) -> tuple[Pause, int | None]:
    """The pause and the version of its node; None if there is none."""
    try:
        found = await store.get(PAUSE_PATH)
    except NoNode:
        return Pause(), None
    try:
        pause = msgspec.json.decode(found.value, type=Pause)
    except DECODE_FAULTS as error:
        raise CorruptData(
            f"expected a pause of repair in {PAUSE_PATH}, found {found.value[:100]!r}: {error}"
        ) from error
    if pause.version != VERSION:
        raise CorruptData(f"expected version {VERSION} in {PAUSE_PATH}, found {pause.version}", found=pause.version)
    return pause, found.version
