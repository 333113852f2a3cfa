"""Keeps the list of the cluster's engines, which each engine tells its SDKs: they move to another one when it fails.

The list is read again whenever members come or go. While the metadata store is away it stays what it was: an address that
no longer answers costs an SDK one attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from boki_common.errors import BokiError
from boki_common.logs import get_logger
from boki_common.metadata.membership import MEMBERS, members
from boki_common.metadata.store import MetadataStore

LISTED_ENGINES: Final = 64
RETRY_S: Final = 1.0

_log = get_logger("engine")


async def keep_engine_list(
    metadata: MetadataStore, role: str, tell: Callable[[list[str]], None], *, retry_s: float = RETRY_S
) -> None:
    """Tells the addresses of all members of a role, now and after each change. Ends only when cancelled."""
    watch = metadata.watch(f"{MEMBERS}/{role}")
    try:
        while True:
            try:
                found = await members(metadata, role)
            except BokiError as error:
                _log.info("list of engines not read", error=error)
                await asyncio.sleep(retry_s)
                continue
            addresses = [str(address) for value in found.values() for address in value.get("addresses", ())]
            tell(addresses[:LISTED_ENGINES])
            await watch.changed()
    finally:
        watch.close()
