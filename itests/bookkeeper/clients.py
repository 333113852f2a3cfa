"""Our ledger client and Apache's behind one face, so that a test can give either the part of the other.

    writer = await client.create(placement, digest)     # placement: three bookies, and the spare one
    await writer.append(["one", "two"])                 # pipelined; returns the last entry id, all acknowledged
    reader = await other.open(writer.ledger_id, digest, recover=True)
    await reader.read(0, reader.last)

Entries are texts. `Fenced` and `Deleted` are what each client's own error becomes; everything else passes as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from boki_common.errors import LedgerFenced, NoSuchLedger
from boki_common.metadata.store import MetadataStore
from boki_common.runtime.process import SystemRandom
from boki_ledger.client import LedgerClient
from boki_ledger.read.reader import LedgerReader
from boki_ledger.settings import LedgerSettings
from boki_ledger.write.writer import LedgerWriter
from itests.bookkeeper.java_service import JavaError, JavaService

PASSWORD: Final = "key"
TIMEOUT_S: Final = 20.0
JAVA_DIGESTS: Final = {"HMAC": "MAC"}

# A fenced bookie's refusal of this entry, or of an earlier one that the two other bookies had acknowledged: after the second,
# the client reads metadata in order to change the ensemble, finds the ledger closed, and closes its own handle.
JAVA_FENCED: Final = ("BKLedgerFencedException", "BKLedgerClosedException")

T = TypeVar("T")


class Fenced(Exception):
    """The writer found that its ledger is fenced."""


class Deleted(Exception):
    """There is no such ledger."""


async def until(ask: Callable[[], Awaitable[T]], wanted: Callable[[T], bool]) -> T:
    """Asks until the answer is as wanted: what is awaited happens by itself, and nobody tells when."""
    async with asyncio.timeout(TIMEOUT_S):
        while not wanted(found := await ask()):
            pass
    return found


class Placement(NamedTuple):
    """The bookies of a ledger, in order, and the one that takes the place of a lost one."""

    ensemble: tuple[str, ...]
    spare: str


class Writer(Protocol):
    ledger_id: int

    async def append(self, entries: Sequence[str]) -> int: ...
    async def close(self) -> None: ...


class Reader(Protocol):
    closed: bool
    last: int

    async def read_lac(self) -> int: ...
    async def read(self, first: int, last: int) -> list[str]: ...


class Client(Protocol):
    async def create(self, placement: Placement, digest: str) -> Writer: ...
    async def open(self, ledger_id: int, digest: str, *, recover: bool) -> Reader: ...
    async def delete(self, ledger_id: int) -> None: ...


class ChosenFirst(SystemRandom):
    """Puts chosen items first, in their order, when it shuffles: our client then takes these bookies."""

    chosen: Sequence[str] = ()

    def shuffled(self, items: Sequence[T]) -> list[T]:
        places = {bookie: place for place, bookie in enumerate(self.chosen)}
        return sorted(super().shuffled(items), key=lambda item: places.get(str(item), len(places)))


class OurWriter:
    def __init__(self, writer: LedgerWriter) -> None:
        self.ledger_id = writer.ledger_id
        self._writer = writer

    async def append(self, entries: Sequence[str]) -> int:
        try:
            return (await asyncio.gather(*(self._writer.append(entry.encode()) for entry in entries)))[-1]
        except LedgerFenced as error:
            raise Fenced from error

    async def close(self) -> None:
        await self._writer.close()


class OurReader:
    def __init__(self, reader: LedgerReader) -> None:
        self.closed = reader.closed
        self.last = reader.last_entry
        self._reader = reader

    async def read_lac(self) -> int:
        return await self._reader.read_lac()

    async def read(self, first: int, last: int) -> list[str]:
        return [bytes(entry).decode() for entry in await self._reader.read(first, last)]


class OurClient:
    """Our client over one protocol. Use as an async context manager."""

    def __init__(self, store: MetadataStore, protocol: str) -> None:
        self._rng = ChosenFirst()
        self.ledgers = LedgerClient(metadata=store, rng=self._rng, settings=LedgerSettings(wire_protocol=protocol))

    async def __aenter__(self) -> OurClient:
        await self.ledgers.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.ledgers.close()

    async def create(
        self,
        placement: Placement,
        digest: str,
        *,
        password: str = PASSWORD,
        custom: Mapping[str, bytes] | None = None,
    ) -> Writer:
        self.place(placement)
        made = await self.ledgers.create(
            digest=digest, replicas=len(placement.ensemble), password=password.encode(), custom=custom
        )
        return OurWriter(made)

    def place(self, placement: Placement) -> None:
        """Where `ledgers.create` puts the next ledger."""
        self._rng.chosen = (*placement.ensemble, placement.spare)

    async def open(self, ledger_id: int, digest: str, *, recover: bool) -> Reader:
        try:
            return OurReader(await self.ledgers.open(ledger_id, recover=recover, password=PASSWORD.encode()))
        except NoSuchLedger as error:
            raise Deleted from error

    async def delete(self, ledger_id: int) -> None:
        await self.ledgers.delete(ledger_id)


class JavaWriter:
    def __init__(self, java: JavaService, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        self._java = java

    async def append(self, entries: Sequence[str]) -> int:
        try:
            last: int = await self._java("append", ledger=self.ledger_id, entries=list(entries))
        except JavaError as error:
            if error.kind in JAVA_FENCED:
                raise Fenced from error
            raise
        return last

    async def close(self) -> None:
        await self._java("close", ledger=self.ledger_id)


class JavaReader:
    def __init__(self, java: JavaService, opened: dict[str, int], *, batch: bool) -> None:
        self.closed = bool(opened["closed"])
        self.last = opened["last"]
        self.handle = opened["handle"]
        self._java = java
        self._batch = batch

    async def read_lac(self) -> int:
        lac: int = await self._java("read lac", handle=self.handle)
        return lac

    async def read(self, first: int, last: int) -> list[str]:
        """Over v2 with batch reads, which v3 has none of."""
        entries: list[str] = await self._java("read", handle=self.handle, first=first, last=last, batch=self._batch)
        return entries


class JavaClient:
    """Apache's client over one protocol."""

    def __init__(self, java: JavaService, protocol: str) -> None:
        self._java = java
        self._protocol = protocol

    async def create(
        self, placement: Placement, digest: str, *, deferred: bool = False, advanced: bool = False
    ) -> JavaWriter:
        ledger_id = await self._java(
            "create",
            protocol=self._protocol,
            digest=JAVA_DIGESTS.get(digest, digest),
            password=PASSWORD,
            bookies=",".join(placement.ensemble),
            spare=placement.spare,
            deferred=deferred,
            advanced=advanced,
        )
        return JavaWriter(self._java, ledger_id)

    async def open(self, ledger_id: int, digest: str, *, recover: bool) -> JavaReader:
        try:
            opened = await self._java(
                "open",
                protocol=self._protocol,
                digest=JAVA_DIGESTS.get(digest, digest),
                password=PASSWORD,
                ledger=ledger_id,
                recover=recover,
            )
        except JavaError as error:
            if error.kind == "BKNoSuchLedgerExistsOnMetadataServerException":
                raise Deleted from error
            raise
        return JavaReader(self._java, opened, batch=self._protocol == "v2")

    async def delete(self, ledger_id: int) -> None:
        await self._java("delete", protocol=self._protocol, ledger=ledger_id)
