"""Writes that end with a known outcome although answers get lost (DESIGN §4 rule 4).

A write whose answer was lost may still be under way: it can land after we have looked and seen nothing. So looking
settles nothing. What settles it is the version: the *same* write is repeated at the *same* version until the version has
moved; from then on no copy of it can land any more, and what is there now can be compared.

The value must carry an owner token (something no other writer would write there), else two writers of equal values both
believe that they won. A node that is settled this way must not be deleted and made again: versions would start anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from boki_common import limits
from boki_common.backoff import Backoff
from boki_common.errors import BadVersion, MetadataUnavailable, MetadataUnknown, NodeExists, NoNode
from boki_common.metadata.store import NOTHING, MetadataStore

DEADLINE_S: Final = 4 * limits.CALL_TIMEOUT_S
"""How long a write is repeated by default."""
FIRST_DELAY_S: Final = 0.02
DELAY_MAX_S: Final = 1.0


class Superseded(BadVersion):
    """The version moved more than once: ours may have been applied and replaced by a later write.

    A BadVersion for who reads again and decides from there; not definite for who would undo what the write named.
    """

    definite = False


async def compare_and_set(
    store: MetadataStore,
    path: str,
    value: bytes,
    *,
    version: int,
    creating: Mapping[str, bytes] = NOTHING,
    deadline_s: float = DEADLINE_S,
) -> int:
    """`store.set`, with an outcome. `value` must contain an owner token. Returns the new version.

    Raises:
        NodeExists: of a node of `creating`, at the version: nothing was done, and as long as it is there nothing will be.
        BadVersion: another write took the version; ours certainly did not. Superseded: it cannot be known any more.
        NoNode: the node is gone.
        MetadataUnavailable: nothing was ever sent. MetadataUnknown: not settled within `deadline_s`.
    """
    attempts = _Attempts(deadline_s)
    while True:
        try:
            return await store.set(path, value, version=version, creating=creating)
        except (MetadataUnavailable, MetadataUnknown) as error:
            await attempts.again(error)
        except BadVersion:
            if not attempts.unknown:
                raise
            break
    while True:
        try:
            current = await store.get(path)
        except MetadataUnavailable as error:
            await attempts.again(error)
            continue
        if current.value == value:
            return current.version
        facts = {"path": path, "expected": version, "found": current.version}
        if current.version == version + 1:
            raise BadVersion(f"another write took version {version} of {path}: read it again", **facts)
        raise Superseded(
            f"{path} moved from version {version} to {current.version} while the answer to our write was lost: it may "
            "have been applied and replaced; read it again",
            **facts,
        )


async def create_settled(
    store: MetadataStore, path: str, value: bytes, *, ephemeral: bool = False, deadline_s: float = DEADLINE_S
) -> None:
    """`store.create`, with an outcome. `value` must contain an owner token.

    Raises:
        NodeExists: another's node, ours was not made. NoNode: no parent.
        MetadataUnavailable: nothing was ever sent. MetadataUnknown: not settled within `deadline_s`, or the node was
            made and changed by others meanwhile, so that it cannot be known who made it.
    """
    attempts = _Attempts(deadline_s)
    while True:
        try:
            await store.create(path, value, ephemeral=ephemeral)
            return
        except (MetadataUnavailable, MetadataUnknown) as error:
            await attempts.again(error)
            continue
        except NodeExists:
            if not attempts.unknown:
                raise
        try:
            current = await store.get(path)
        except NoNode:
            continue  # deleted in between: make it again
        except MetadataUnavailable as error:
            await attempts.again(error)
            continue
        if current.value == value:
            return
        if current.version == 0:
            raise NodeExists(f"{path} was made by another", path=path)
        raise MetadataUnknown(f"{path} exists and was changed since: it cannot be known whether we made it", path=path)


class _Attempts:
    """Back-off and deadline of one write; remembers whether any attempt may have been applied."""

    def __init__(self, deadline_s: float) -> None:
        self.unknown = False
        self._deadline = asyncio.get_running_loop().time() + deadline_s
        self._backoff = Backoff(FIRST_DELAY_S, DELAY_MAX_S)

    async def again(self, error: MetadataUnavailable | MetadataUnknown) -> None:
        """Waits before the next attempt. Raises when there is none: an attempt that surely was not sent ends a call
        that never sent anything, else only the deadline does."""
        self.unknown = self.unknown or isinstance(error, MetadataUnknown)
        if not self.unknown:
            raise error
        left_s = self._deadline - asyncio.get_running_loop().time()
        if left_s <= 0:
            raise MetadataUnknown(f"not settled in time; the last attempt: {error}", **error.facts) from error
        await asyncio.sleep(min(self._backoff.next(), left_s))
