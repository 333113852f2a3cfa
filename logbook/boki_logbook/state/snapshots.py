"""Index snapshots in ledgers, and the node that names the newest one (DESIGN §7).

    store = SnapshotStore(metadata=…, ledgers=…, incarnation=…)
    snapshot = await store.load()                       # None: there is none, start from nothing
    await store.save(snapshot, after=(node, version))   # False: somebody else was faster

Rules:
- A snapshot becomes *the* snapshot by one compare-and-swap of `/boki/snapshot`, at the version that was read before it was
  taken. Who loses deletes what he wrote.
- Its ledgers carry that version (`VERSION_KEY`): what nobody can name any more is recognised by anybody (`unnamed`), however its
  writer ended.
- Where too few bookies take writes, a small snapshot is written to the reserves of those whose disks are full: nothing can be reclaimed
  before a snapshot covers it. An upload that makes no progress is given up, so that a later one begins with what there is then.
- Loading and saving go on chunk by chunk and let others have their turn after each.
- A snapshot that cannot be trusted is refused as a whole, by name; a start from the metalogs instead is logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from xxhash import xxh3_64

from boki_common import limits
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata
from boki_common.errors import (
    BadVersion,
    BokiError,
    CorruptData,
    DigestMismatch,
    NodeExists,
    NoNode,
    NoSuchEntry,
    NoSuchLedger,
    Overloaded,
    VersionMismatch,
)
from boki_common.logs import get_logger
from boki_common.metadata.settle import Superseded, compare_and_set
from boki_common.metadata.store import MetadataStore, Versioned
from boki_common.retry import event_or_timeout
from boki_ledger.ledgers import LedgerReader, Ledgers, LedgerWriter
from boki_logbook.state import snapshot_format
from boki_logbook.state.snapshot_format import Decoder, Snapshot
from boki_logbook.state.snapshot_rules import (
    NO_SNAPSHOT,
    SNAPSHOT_PATH,
    VERSION,
    SnapshotNode,
    SnapshotPoint,
    decode_node,
    encode_node,
    never_named,
)

ROLE_KEY: Final = "boki.role"
ROLE: Final = b"snapshot"
INCARNATION_KEY: Final = "boki.incarnation"
VERSION_KEY: Final = "boki.snapshot-version"
CHUNKS_PER_READ: Final = 4
STALLED_S: Final = 60.0
"""An upload of which nothing was acknowledged for so long is given up."""
UNUSABLE: Final = (CorruptData, VersionMismatch, NoSuchLedger, NoSuchEntry, DigestMismatch)
"""What says that a snapshot cannot be had, now or ever; anything else may pass."""

_log = get_logger("snapshots")


class Upload:
    """The chunks of one ledger on their way. Raises in `put` and `end` what failed its writer."""

    def __init__(self, writer: LedgerWriter) -> None:
        self.writer = writer
        self._sent = self._acked = 0
        self._fault: BokiError | None = None
        self._moved = asyncio.Event()
        writer.listen(self._acknowledged, self._failed)

    def _acknowledged(self, last: int) -> None:
        self._acked = last + 1
        self._moved.set()

    def _failed(self, error: BokiError) -> None:
        self._fault = error
        self._moved.set()

    async def put(self, chunk: bytes) -> None:
        await self._until(limits.SNAPSHOT_CHUNKS_IN_FLIGHT - 1)
        self.writer.submit(chunk)
        self._sent += 1

    async def _until(self, in_flight: int) -> None:
        while self._sent - self._acked > in_flight:
            if self._fault is not None:
                raise self._fault
            self._moved.clear()
            if not await event_or_timeout(self._moved, STALLED_S):
                raise Overloaded(
                    f"expected bookies to take a snapshot, found none of ledger {self.writer.ledger_id} acknowledged for {STALLED_S:.0f} s"
                )

    @property
    def full(self) -> bool:
        return self._sent >= limits.SNAPSHOT_LEDGER_CHUNKS

    async def end(self) -> None:
        """Closes the ledger, once all of it is durable."""
        await self._until(0)
        last = await self.writer.close()
        assert last == self._sent - 1, "a writer closes behind what it acknowledged"


async def value_of(metadata: MetadataStore, path: str, first: bytes, *, make: bool) -> Versioned:
    """A node's value and its version; where there is none, `first` at version -1, unless it is to be made so."""
    while True:
        try:
            return await metadata.get(path)
        except NoNode:
            if not make:
                return Versioned(first, -1)
        with suppress(NodeExists):
            await metadata.create(path, first)


class SnapshotStore:
    """See the module."""

    def __init__(
        self,
        *,
        metadata: MetadataStore,
        ledgers: Ledgers,
        incarnation: str,
        replicas: int = 3,
        acks: int = 2,
    ) -> None:
        self._metadata = metadata
        self._ledgers = ledgers
        self._incarnation = incarnation
        self._replicas = replicas
        self._acks = acks

    async def newest(self, *, make: bool = False) -> tuple[SnapshotNode, int]:
        """The node and its version; -1: there is none, and none was to be made. Raises CorruptData, VersionMismatch: it says
        what cannot be right, or what this program does not know."""
        value, version = await value_of(self._metadata, SNAPSHOT_PATH, encode_node(NO_SNAPSHOT), make=make)
        return decode_node(value), version

    # -- loading

    async def load(self, node: SnapshotNode) -> Snapshot:
        """The snapshot that a node names. Raises one of `UNUSABLE`: it cannot be had; read the node again, it may name another
        one by now; BokiError: try again."""
        decoder, digest = Decoder(node.raw_bytes), xxh3_64()
        async for chunk in self._chunks(node):
            digest.update(chunk)
            decoder.feed(chunk)
            await asyncio.sleep(0)
        if (decoder.chunks, digest.hexdigest()) != (node.chunks, node.digest):
            raise CorruptData(
                f"expected a snapshot of {node.chunks} chunks with digest {node.digest}, found {decoder.chunks} with "
                f"{digest.hexdigest()}",
                expected=node.digest,
                found=digest.hexdigest(),
            )
        for _ in decoder.finish():
            await asyncio.sleep(0)
        return decoder.snapshot()

    async def _chunks(self, node: SnapshotNode) -> AsyncIterator[memoryview]:
        for ledger_id in node.ledgers:
            reader: LedgerReader = await self._ledgers.open(ledger_id, recover=False)
            try:
                if not reader.closed:
                    raise CorruptData(
                        f"snapshot ledger {ledger_id} was named before it was closed", ledger_id=ledger_id
                    )
                for first in range(0, reader.last_entry + 1, CHUNKS_PER_READ):
                    last = min(first + CHUNKS_PER_READ - 1, reader.last_entry)
                    for chunk in await reader.read(first, last):
                        yield chunk
            finally:
                await reader.close()

    # -- saving

    async def save(self, snapshot: Snapshot, *, version: int) -> SnapshotNode | None:
        """Writes a snapshot and names it, if the node is still at `version`; None: it is not, another one is named. Raises
        BokiError: it was not named, or that is unknown; what was written is deleted now or later."""
        written: list[int] = []
        try:
            node = await self._write(snapshot, version, written)
            await compare_and_set(self._metadata, SNAPSHOT_PATH, encode_node(node), version=version)
        except Superseded:
            return None  # ours may be one of those since; if it is not, `unnamed` finds it
        except BadVersion:
            await self.delete(written)
            return None
        except BokiError as error:
            if error.definite:
                await self.delete(written)
            raise
        return node

    async def _write(self, snapshot: Snapshot, version: int, written: list[int]) -> SnapshotNode:
        digest, size, chunks = xxh3_64(), 0, 0
        small = snapshot_format.raw_bytes(snapshot) <= limits.SNAPSHOT_RESERVE_BYTES
        upload: Upload | None = None
        try:
            for chunk in snapshot_format.encode(snapshot):
                if upload is None or upload.full:
                    if upload is not None:
                        await upload.end()
                    upload = await self._begin(version, written, small=small)
                await upload.put(chunk)
                digest.update(chunk)
                size, chunks = size + len(chunk), chunks + 1
                await asyncio.sleep(0)
            assert upload is not None, "a snapshot has a head"
            await upload.end()
            upload = None
        finally:
            if upload is not None:
                upload.writer.abandon()
        return SnapshotNode(
            VERSION,
            tuple(written),
            tuple(SnapshotPoint(one.log, one.term, one.entry, one.ended) for one in snapshot.logs),
            sum(len(rows.seqnums) for rows in snapshot.state.rows),
            snapshot.state.records,
            chunks,
            snapshot_format.raw_bytes(snapshot),
            size,
            digest.hexdigest(),
            self._incarnation,
        )

    async def _begin(self, version: int, written: list[int], *, small: bool) -> Upload:
        custom = {
            ROLE_KEY: ROLE,
            INCARNATION_KEY: self._incarnation.encode(),
            VERSION_KEY: str(version).encode(),
        }
        writer = await self._ledgers.create(replicas=self._replicas, acks=self._acks, custom=custom, control=small)
        written.append(writer.ledger_id)
        return Upload(writer)

    async def delete(self, ledger_ids: Sequence[int]) -> None:
        """Deletes ledgers that nobody needs; what fails is found again by `unnamed`."""
        for ledger_id in ledger_ids:
            try:
                await self._ledgers.delete(ledger_id)
            except NoSuchLedger:
                continue
            except BokiError as error:
                _log.warning("snapshot ledger not deleted yet", ledger_id=ledger_id, error=error)

    async def unnamed(self, ledger_id: int, node: SnapshotNode, version: int) -> bool:
        """Whether a ledger belongs to a snapshot that is not named, and never will be."""
        try:
            metadata: LedgerMetadata = await self._ledgers.metadata_of(ledger_id)
        except NoSuchLedger:
            return False
        custom = dict(metadata.custom)
        wanted = custom.get(VERSION_KEY, b"")
        return custom.get(ROLE_KEY) == ROLE and wanted.isdigit() and never_named(ledger_id, int(wanted), node, version)


class Start(NamedTuple):
    """What an engine begins with. `fault`: why that is not the newest snapshot; nobody should rely on that one."""

    snapshot: Snapshot | None
    fault: BokiError | None = None


async def snapshot_to_start_from(
    store: SnapshotStore,
    *,
    whole: Callable[[], Awaitable[bool]],
    usable: Callable[[Snapshot], None],
    waits: Callable[[str], None],
    retry_s: float,
) -> Start:
    """The newest snapshot, or none: then to start from the metalogs, all of which are still there.

    What merely cannot be read now is tried again, for as long as it takes: bookies that are away come back. So is what can never be
    used while the metalogs do not have everything: an engine that runs writes the next snapshot.

    Args:
        whole: whether no sealed term was reclaimed, so that the metalogs have everything.
        usable: raises one of `UNUSABLE` when nothing can be made of a snapshot.
        waits: called with why this takes longer.
    """
    reported = ""
    while True:
        try:
            fault, ledgers = await _tried(store, usable)
            if not isinstance(fault, BokiError):
                return Start(fault)
            if await whole():
                _log.error(
                    "the index snapshot cannot be used: the index is rebuilt from the metalogs",
                    ledgers=ledgers,
                    error=fault,
                )
                return Start(None, fault)
            text = (
                f"the index snapshot cannot be used ({fault}), and terms were reclaimed behind it, so their metalogs are gone: "
                f"restore its ledgers {list(ledgers)}, or keep an engine running, which writes the next one"
            )
            if text != reported:
                _log.error(text)
                waits(reported := text)
        except BokiError as error:
            _log.warning("snapshot cannot be read now: trying again", error=error)
        await asyncio.sleep(retry_s)


async def _tried(
    store: SnapshotStore, usable: Callable[[Snapshot], None]
) -> tuple[Snapshot | BokiError | None, tuple[int, ...]]:
    """The newest snapshot, None if there is none, or why it can never be used; and its ledgers."""
    refused: tuple[int, ...] = ()
    fault: BokiError | None = None
    while True:
        try:
            node, _ = await store.newest()
        except (CorruptData, VersionMismatch) as error:
            return error, ()
        if not node.ledgers:
            return None, ()
        if fault is not None and node.ledgers == refused:
            return fault, refused
        try:
            snapshot = await store.load(node)
            usable(snapshot)
            return snapshot, node.ledgers
        except UNUSABLE as error:
            fault, refused = error, node.ledgers  # unless another one is named by now
