"""Keeps the list of the cluster's engines, which each engine sends its SDKs: they move to another one when it fails. One that
does not index all slots finds there who indexes the others.

The list is read again whenever members come or go. While the metadata store is away it stays what it was: an address that
no longer answers costs an SDK one attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from boki_common.errors import BokiError
from boki_common.logs import get_logger
from boki_common.metadata.membership import MEMBERS, members
from boki_common.metadata.store import MetadataStore
from boki_metalog.terms.index_slots import EngineMember, engine_members

LISTED_ENGINES: Final = 64
RETRY_S: Final = 1.0

_log = get_logger("engine")


async def keep_engine_list(
    metadata: MetadataStore, role: str, on_change: Callable[[list[EngineMember]], None], *, retry_s: float = RETRY_S
) -> None:
    """Passes on all members of a role, now and after each change. Ends only when cancelled."""
    watch = metadata.watch(f"{MEMBERS}/{role}")
    try:
        while True:
            try:
                found = await members(metadata, role)
            except BokiError as error:
                _log.info("list of engines not read", error=error)
                await asyncio.sleep(retry_s)
                continue
            on_change(engine_members(found))
            await watch.changed()
    finally:
        watch.close()


def listed_addresses(engines: Iterable[EngineMember]) -> list[str]:
    """Where engines are, as it is sent to SDKs: not more than `LISTED_ENGINES` of them."""
    return [address for engine in engines for address in engine.addresses][:LISTED_ENGINES]
