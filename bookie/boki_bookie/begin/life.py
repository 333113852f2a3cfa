"""The life of a running bookie: it begins after the stores are open and before anybody is served (`life_rules` says why).

While it lasts, `tell` keeps the cookie in step with the checkpoints of the directories. A cookie with another token means that
a copy of the directories was started elsewhere: two bookies under one id, of which this one must end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Self

from boki_bookie.begin.identity import Identity, not_current, with_life
from boki_bookie.begin.life_file import read_life, write_slot
from boki_bookie.begin.life_rules import TOKEN_BYTES, Slot, next_number, slot_to_write
from boki_common.backoff import Backoff
from boki_common.bookkeeper.layout import CookieLife, bookie_path, cookie_path, decode_cookie
from boki_common.errors import BadVersion, DiskFull, MetadataUnknown, NodeExists, WrongDirectory
from boki_common.logs import get_logger
from boki_common.metadata.membership import JOIN_TIMEOUT_S
from boki_common.metadata.settle import DEADLINE_S, DELAY_MAX_S, FIRST_DELAY_S, compare_and_set
from boki_common.metadata.store import MetadataStore, Versioned
from boki_common.runtime.ports import Disk, Random

_log = get_logger("bookie")


class Life:
    """See the module. Made by `begin`."""

    def __init__(self, metadata: MetadataStore, identity: Identity, life: CookieLife | None) -> None:
        self._metadata = metadata
        self._identity = identity
        self._life = life

    @classmethod
    async def begin(
        cls,
        disks: Sequence[Disk],
        metadata: MetadataStore,
        identity: Identity,
        *,
        rng: Random,
        checkpoints: Sequence[int],
        timeout_s: float = JOIN_TIMEOUT_S,
    ) -> Self:
        """Steps 1 to 4 of `life_rules`; an older copy has been salvaged before.

        Args:
            disks: the directories, locked.
            checkpoints: the number of the last one of each directory.
            timeout_s: how long a registration under its id may take to vanish.

        Raises:
            WrongDirectory: an older copy, or one that is started elsewhere just now. NodeExists: another process is
            registered under this id. MetadataError, DiskFull, DiskFailed.
        """
        await _until_unregistered(metadata, identity, timeout_s)
        current = await _confirmed_cookie(metadata, identity)
        known = decode_cookie(current.value).life
        stored = [await read_life(disk, identity.raw) for disk in disks]
        if not identity.is_older_copy:
            for number, (disk, one) in enumerate(zip(disks, stored, strict=True)):
                error = not_current(disk, one, known, directory=number)
                if error is not None:
                    raise error
        slot = Slot(next_number(stored, known), rng.token(TOKEN_BYTES).hex())
        life = CookieLife(*slot, tuple(checkpoints))
        try:
            for disk, one in zip(disks, stored, strict=True):
                await write_slot(disk, slot_to_write(one, known), slot, identity.raw)
        except DiskFull as error:
            if known is not None:
                raise
            _log.warning("no space to note the first start; an older copy will not be recognised", error=error)
            return cls(metadata, identity, None)
        try:
            await compare_and_set(
                metadata, cookie_path(identity.bookie_id), with_life(identity, life), version=current.version
            )
        except BadVersion as error:
            raise WrongDirectory(
                f"the cookie of bookie {identity.bookie_id} changed while it started: is a copy of {disks[0].describe()} "
                "in use elsewhere? Only one may be",
                path=disks[0].describe(),
            ) from error
        return cls(metadata, identity, life)

    async def record(self, checkpoints: Sequence[int]) -> None:
        """These are durable: a copy that has not got so far is an older one. Raises WrongDirectory: a copy was started
        elsewhere, this bookie must end; MetadataError: it may be repeated."""
        if self._life is None or (life := self._life._replace(checkpoints=tuple(checkpoints))) == self._life:
            return
        path = cookie_path(self._identity.bookie_id)
        current = await self._metadata.get(path)
        known = decode_cookie(current.value).life
        if known is not None and known.token != life.token:
            raise WrongDirectory(
                f"a copy of {self._identity.place} was started elsewhere as bookie {self._identity.bookie_id} (start "
                f"{known.number}, this is start {life.number}): two bookies under one id. Stop that one and salvage",
                path=self._identity.place,
                expected=life.number,
                found=known.number,
            )
        await self._metadata.set(path, with_life(self._identity, life), version=current.version)
        self._life = life


async def _until_unregistered(metadata: MetadataStore, identity: Identity, timeout_s: float) -> None:
    """A bookie that is registered under this id serves, or did a moment ago: nothing may begin before it is gone."""
    for read_only in (False, True):
        path = bookie_path(identity.bookie_id, read_only=read_only)
        watch = metadata.watch(path)
        try:
            while await metadata.exists(path):
                async with asyncio.timeout(timeout_s):
                    await watch.changed()
        except TimeoutError as error:
            raise NodeExists(
                f"{path} is held by another session and did not vanish within {timeout_s} s: does another process "
                "run under the same name? Stop it first",
                path=path,
            ) from error
        finally:
            watch.close()


async def _confirmed_cookie(metadata: MetadataStore, identity: Identity) -> Versioned:
    """The cookie, after which no write of an earlier life can land. Raises MetadataError."""
    path = cookie_path(identity.bookie_id)
    loop = asyncio.get_running_loop()
    deadline, backoff = loop.time() + DEADLINE_S, Backoff(FIRST_DELAY_S, DELAY_MAX_S)
    while True:
        current = await metadata.get(path)
        try:
            return current._replace(version=await metadata.set(path, current.value, version=current.version))
        except (MetadataUnknown, BadVersion):
            if loop.time() >= deadline:
                raise
        await asyncio.sleep(backoff.next())
