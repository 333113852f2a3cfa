"""Drains: the check before one, and its end, when nothing names the bookie any more (`drain_rules`, `bookie_mark`).

    await check_drain(ports, store, bookie)        # why not; empty if it may be
    await begin_drain(store, bookie, rng)          # marks it; its copies are moved by the auditor, it empties itself
    drains = Drains(ports, store); await drains.look(); await drains.finish(...)

The end of a drain, by any controller, resumable at each step:

    1  read the mark: the bookie refuses all adds and is empty, or it is away for the grace
    2  write the mark again as it is: what this session reads from now on is newer
    3  list all ledgers, read them: none names the bookie in a fragment with entries
    4  compare-and-swap of the mark to retired, at the version of step 2: a cancellation in between wins
    5  delete the cookie; a controller that finds a retired bookie with a cookie does this too
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, Final

from boki_common.bookkeeper import layout
from boki_common.bookkeeper.bookie_mark import DRAINING, RETIRED, BookieMark, SeenMark, cancelled, draining, retired
from boki_common.bookkeeper.bookie_marks import read_mark, read_marks, write_mark
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.errors import BadVersion, CorruptData, InvalidArgument, NoNode, NoSuchLedger
from boki_common.ids import BookieId
from boki_common.logs import get_logger
from boki_common.metadata.store import MetadataStore
from boki_common.runtime.ports import Random
from boki_ledger.ports import LedgerPorts
from boki_ledger.repair.autorecovery import read_autorecovery
from boki_ledger.repair.drain_rules import (
    DrainCheck,
    Refused,
    has_entries,
    is_recoverable,
    may_get_entries,
    may_list,
    refusals,
    waits_for,
)
from boki_ledger.rules.answers import Verdict, answer_of, entry_verdict
from boki_ledger.rules.write_set import write_set

READ_AT_ONCE: Final = 64

_log = get_logger("repair")


# -- what a person asks for


async def check_drain(ports: LedgerPorts, store: MetadataStore, bookie: BookieId) -> list[Refused]:
    """Return why a bookie cannot be drained; empty, if it can. Raises InvalidArgument: there is no such bookie. MetadataError."""
    cookies = await layout.bookie_cookies(store)
    if bookie not in cookies:
        known = ", ".join(cookies) or "none"
        raise InvalidArgument(f"expected the id of a bookie ({known}), found {bookie!r}", found=bookie)
    listed = {read_only: await layout.available_bookies(store, read_only=read_only) for read_only in (False, True)}
    marks = await read_marks(store)
    members = await ports.updates.members.look([*cookies])
    away = {one for one in cookies if one not in listed[False] and one not in listed[True]}
    away -= {one for one in sorted(away) if (await ports.transport.bookie_info(one)).status is not None}
    targets = {
        one: (await ports.transport.bookie_info(one)).free_bytes
        for one in listed[False]
        if one != bookie and one in members and members[one].ours and not _leaves(marks.get(one))
    }
    check = DrainCheck(
        bookie, members[bookie].ours, frozenset(away), targets, (await read_autorecovery(store, marks=False)).runs
    )
    return refusals(check, await read_ledgers(ports, await layout.list_ledgers(store)))


def _leaves(seen: SeenMark | None) -> bool:
    return seen is not None and seen.mark.state != BookieMark().state


async def begin_drain(store: MetadataStore, bookie: BookieId, rng: Random) -> SeenMark:
    """Mark a bookie as draining; one that drains stays as it is. Raises InvalidArgument: it is retired. MetadataError."""
    return await _change(store, bookie, rng, cancel=False)


async def cancel_drain(store: MetadataStore, bookie: BookieId, rng: Random) -> SeenMark:
    """Mark a bookie as active again. Raises InvalidArgument: it does not drain, or is retired already. MetadataError."""
    return await _change(store, bookie, rng, cancel=True)


async def _change(store: MetadataStore, bookie: BookieId, rng: Random, *, cancel: bool) -> SeenMark:
    while True:  # each lost race is another write of the bookie, a person or a controller
        seen = await read_mark(store, bookie)
        wanted = cancelled(seen.mark, bookie) if cancel else draining(seen.mark, bookie)
        if wanted == seen.mark:
            return seen
        try:
            return await write_mark(store, bookie, wanted, seen=seen, rng=rng)
        except BadVersion as error:
            _log.info("mark of a bookie changed meanwhile: it is read again", bookie_id=bookie, error=error)


# -- reading


async def read_ledgers(ports: LedgerPorts, ledgers: list[Any]) -> dict[int, LedgerMetadata | None]:
    """The metadata of ledgers that are there; None where it cannot be read. Raises MetadataError."""
    found: dict[int, LedgerMetadata | None] = {}

    async def read(ledger_id: int) -> None:
        try:
            found[ledger_id] = (await ports.updates.read_now(ledger_id)).metadata
        except NoSuchLedger:
            return
        except CorruptData as error:
            _log.error("metadata of a ledger cannot be read", ledger_id=ledger_id, error=error)
            found[ledger_id] = None

    for begin in range(0, len(ledgers), READ_AT_ONCE):
        await asyncio.gather(*map(read, ledgers[begin : begin + READ_AT_ONCE]))
    return dict(sorted(found.items()))


# -- what a controller does


class Drains:
    """The bookies that drain, and the end of their drains; see the module."""

    def __init__(self, ports: LedgerPorts, store: MetadataStore) -> None:
        self._ports = ports
        self._store = store
        self._marks: dict[BookieId, SeenMark] = {}
        self._waits: dict[BookieId, list[str]] = {}
        self._unfinished: list[BookieId] = []
        """Retired ones that have a cookie still."""
        self._retired: tuple[BookieId, ...] = ()
        self.written: dict[int, None] = {}
        """Ledgers that are written, and keep drains from their end."""
        self._sessions = 0
        store.on_session_lost(self._session_lost)

    def _session_lost(self) -> None:
        self._sessions += 1

    @property
    def bookies(self) -> frozenset[BookieId]:
        """Those that drain."""
        return frozenset(self._marks)

    async def look(self) -> None:
        """Read the marks. Raises MetadataError, CorruptData."""
        marks = await read_marks(self._store)
        cookies = frozenset(await layout.bookie_cookies(self._store))
        self._retired = tuple(one for one, seen in marks.items() if seen.mark.state == RETIRED)
        self._unfinished = [one for one in self._retired if one in cookies]
        self._marks = {bookie: seen for bookie, seen in marks.items() if seen.mark.state == DRAINING}
        self._waits = {bookie: self._waits.get(bookie, []) for bookie in self._marks}

    async def finish(
        self, naming: Mapping[BookieId, Mapping[int, LedgerMetadata]], away: Mapping[BookieId, float], *, grace_s: float
    ) -> list[int]:
        """Retire bookies whose drain is at its end, and note what the others wait for.

        Args:
            naming: by bookie the ledgers that are known to name it.
            away: for how many seconds, of each that does not answer.
            grace_s: after which a bookie is not waited for.

        Returns:
            Ledgers that a new listing found to name such a bookie.

        Raises:
            MetadataError: a later round finishes.
        """
        for bookie in self._unfinished:
            await self._delete_cookie(bookie)
        found: dict[int, None] = {}
        self.written = {}
        for bookie, seen in self._marks.items():
            known = naming.get(bookie, {})
            moving = [one for one, metadata in known.items() if has_entries(metadata, bookie)]
            gone = {*away, *self._retired}
            written = [one for one, metadata in known.items() if await self.is_written(one, metadata, bookie, gone)]
            away_s = away.get(bookie)
            if away_s is None:
                written += await self._open_of(seen.mark.left)
            self.written.update(dict.fromkeys(written))
            waits = waits_for(seen.mark, away_s, grace_s=grace_s, moving=len(moving), written=written)
            if not waits and may_list(seen.mark, away_s, grace_s=grace_s):
                left = await self._retire(bookie, seen, away)
                found.update(dict.fromkeys(left))
                waits = [f"{len(left)} ledgers that were made meanwhile name it"] if left else []
            self._waits[bookie] = waits
        return list(found)

    async def _open_of(self, ledgers: tuple[int, ...]) -> list[int]:
        """Those that are not closed: a bookie drops nothing of them. Raises MetadataError."""
        found = await read_ledgers(self._ports, [*ledgers])
        return [one for one, metadata in found.items() if metadata and metadata.state is not LedgerState.CLOSED]

    async def is_written(
        self, ledger_id: int, metadata: LedgerMetadata, bookie: BookieId, gone: Collection[BookieId]
    ) -> bool:
        """Return whether the bookie has a place in a fragment that gets entries, or that cannot be recovered without it.

        One without an acknowledged entry, such as a spare's, costs no copy. The answers of the other bookies show that also while one
        is gone. An entry that is acknowledged later does without the bookie: it is away, or refuses all adds.

        Args:
            gone: other bookies that are away or retired. Recovery would not reach enough bookies without them and this one.
        """
        if not may_get_entries(metadata, bookie):
            return False
        if not is_recoverable(metadata, (*gone, bookie)):
            return True
        first, bookies = metadata.ensembles[-1]
        members = [bookies[slot] for slot in write_set(first, metadata.ensemble_size, metadata.write_quorum)]
        found = await asyncio.gather(*(self._ports.transport.read(one, ledger_id, first) for one in members))
        answers = [answer_of(one.status) for one in found]
        return Verdict.ABSENT is not entry_verdict(
            answers, write_quorum=metadata.write_quorum, ack_quorum=metadata.ack_quorum
        )

    async def _retire(self, bookie: BookieId, seen: SeenMark, away: Collection[BookieId]) -> list[int]:
        """Steps 2 to 5 of the module; the ledgers that name the bookie still, for which it goes on to drain. Raises MetadataError."""
        session = self._sessions
        try:
            seen = await write_mark(self._store, bookie, seen.mark, seen=seen, rng=self._ports.rng)
            ledgers = await read_ledgers(self._ports, [*await layout.list_ledgers(self._store)])
            marks = await read_marks(self._store)
            gone = {*away, *(one for one, other in marks.items() if other.mark.state == RETIRED)}
            naming = [
                ledger_id
                for ledger_id, metadata in ledgers.items()
                if metadata is None
                or has_entries(metadata, bookie)
                or await self.is_written(ledger_id, metadata, bookie, gone)
            ]
            if naming or session != self._sessions:
                return naming
            await write_mark(self._store, bookie, retired(seen.mark), seen=seen, rng=self._ports.rng)
        except BadVersion as error:
            _log.info("mark of a drained bookie changed: it is looked at again", bookie_id=bookie, error=error)
            return []
        _log.info("bookie drained and retired", bookie_id=bookie)
        await self._delete_cookie(bookie)
        return []

    async def _delete_cookie(self, bookie: BookieId) -> None:
        path = layout.cookie_path(bookie)
        try:
            await self._store.delete(path, version=(await self._store.get(path)).version)
        except NoNode:
            return
        except BadVersion as error:
            _log.info("cookie of a retired bookie changed: it goes in the next round", bookie_id=bookie, error=error)

    def status(self) -> list[dict[str, Any]]:
        """Drains and what they wait for, as JSON."""
        return [
            {
                "bookie": bookie,
                "refuses": seen.mark.refuses,
                "empty": seen.mark.empty,
                "ledgers_held": seen.mark.ledgers,
                "waits_for": list(self._waits.get(bookie, [])),
            }
            for bookie, seen in self._marks.items()
        ]
