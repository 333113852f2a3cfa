"""Somebody who means harm, or is broken: what he sends has every checksum right and its content wrong.

    amount 0  messages   OPEN, REPORT, CARRY and CLOSE to a sequencer, and APPENDs to an engine, of random bytes, or with some flipped
           1  entries    a shard of his own, of any log: entries of its data ledger with flipped bytes, reported as any, others to be
                         carried; where the log does not order his book, what engines can read of them joins nothing
           2  pushes     a sequencer whose memory fails: what it pushes is no metalog entry, what it wrote is one
           3  ends       one whose memory fails, and then it does: the last entry of its metalog is none, if recovery keeps it

What engines cannot read of his entries he declares lost in the end, as an administrator would; until then their log may wait. So he
gives up an end that nobody can read. He
has a book of his own, so whatever becomes of his records, nobody's history has them. He forges no report of what is in no ledger:
that is ordered, and is as lost as if its bookies were, but no ledger closes below it (docs/unreadable.md).

Each strike is a process of its own, on a machine of its own. Its numbers are its own too.
"""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - the type; the generators come from the seed
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from boki_common.cluster_token import NO_TOKEN
from boki_common.engine import engine_protocol as wire
from boki_common.errors import BokiError, InvalidArgument, ProtocolError, TermOver
from boki_common.net.connection import Address
from boki_common.net.messages import MessagePeer, connect_messages
from boki_common.records.record_batch import RecordBatch
from boki_common.writer_ids import BORN
from boki_ledger.client import LedgerClient
from boki_logbook.read.entry_fit import Fit
from boki_metalog.control.log_changes import LogChanges
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.entries.metalog_entry import Lost
from boki_metalog.errors import MetalogUnreadable
from boki_metalog.follow.follower_session import FollowerSession
from boki_metalog.follow.sequencer_link import SequencerLink, ShardsOfTerm
from boki_metalog.follow.sequencer_member import address_of, order_at
from boki_metalog.terms.metadata_tree import ensure_view
from boki_metalog.terms.term_end import Decision
from boki_sim.faults.faults import Fault
from boki_sim.nemesis.strangers import Deaf, one_record
from boki_sim.world.randomness import SimRandom, stream

if TYPE_CHECKING:
    from boki_metalog.terms.view import View
    from boki_sim.clusters.cluster import Cluster, Node
    from boki_sim.world.metadata import SimStore

MESSAGES: Final = 0
ENTRIES: Final = 1
PUSHES: Final = 2
LAST: Final = 3
KINDS: Final = (MESSAGES, ENTRIES, PUSHES, LAST)
MOST: Final = 3
"""In one run."""
BOOK: Final = 2**63 + 977
"""Nobody else appends to it."""
WRITER: Final = bytes(7) + (1).to_bytes(5, "little") + BORN
"""All of them share a writer, and its number 1: born, so that it is not begun anew where writers are forgotten within seconds."""
STRIKES: Final = 30
"""Messages of one strike."""
ENTRIES_OF_SHARD: Final = 6
PAUSE_S: Final = 1.0
RETRY_FOR_S: Final = 5.0
REFUSALS: Final = 20
PUSHED_BADLY: Final = 4
"""Pushes in a row, at most."""


def draw_poison(numbers: random.Random, profile: str, targets: Sequence[str], *, seconds: float) -> list[Fault]:
    """In one run of four of the harsh profile, beside all others: their numbers are their own, so no other fault of a seed
    changes. `targets`: sequencers."""
    if profile != "harsh" or numbers.random() < 0.75:
        return []
    return [
        Fault(
            round(numbers.uniform(0.0, 0.8) * seconds, 4),
            "poison",
            numbers.choice(targets),
            amount=float(numbers.choice(KINDS)),
        )
        for _ in range(numbers.randrange(1, MOST + 1))
    ]


def poison_pushes(node: Node, numbers: random.Random) -> bool:
    """The next pushes of a sequencer are garbage; False: it serves no term."""
    server: Any = getattr(node.role, "term_server", None)
    if server is None or server.over is not None:
        return False
    push: Callable[[int, bytes], None] = server._push
    left = numbers.randrange(1, PUSHED_BADLY + 1)

    def push_badly(first: int, data: bytes) -> None:
        nonlocal left
        left -= 1
        push(first, _unparsable(numbers, data) if left >= 0 else data)

    server._push = push_badly
    return True


def poison_end(node: Node, numbers: random.Random) -> tuple[int, int] | None:
    """The next metalog entry of a sequencer is garbage, and its last one. Returns (log, term); None: it serves no term."""
    server: Any = getattr(node.role, "term_server", None)
    log: int | None = getattr(node.role, "log", None)
    if server is None or server.over is not None or log is None:
        return None
    submit: Callable[..., int] = server._writer.submit

    def submit_badly(*payload: bytes, now: bool = False) -> int:
        entry = submit(_unparsable(numbers, b"".join(payload)), now=now)
        asyncio.get_running_loop().call_soon(server.end, TermOver("its memory fails", term=server.term))
        return entry

    server._writer = _Garbling(server._writer, submit_badly)
    return log, server.term


class _Garbling:
    """A writer of a ledger, but for `submit`."""

    def __init__(self, writer: object, submit: Callable[..., int]) -> None:
        self.submit = submit
        self._writer = writer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


class Poisoner:
    """One strike: `run` it as a process of its own."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.process = cluster.loop.process(f"poisoner-{number}", cluster.machine())
        self._cluster = cluster
        self._numbers = stream(cluster.seed, "poison", number)
        self._incarnation = f"{0xBAD0_0000 + number:032x}"

    async def run(self, amount: int, ended: tuple[int, int] = (0, 0)) -> None:
        """`amount`: MESSAGES, ENTRIES, or LAST of a log's term."""
        cluster = self._cluster
        store = cluster.store_of(self.process)
        try:
            await store.start()
            if amount == LAST:
                await self._end(store, *ended)
            else:
                await (self._messages(store) if amount == MESSAGES else self._entries(store))
            await store.close()
        except BokiError as error:
            cluster.trace.add(self.process.name, "got", type(error).__name__)
        cluster.loop.call_soon(self.process.kill, context=cluster.loop.outside.context)

    # -- messages

    async def _messages(self, store: SimStore) -> None:
        numbers = self._numbers
        session, _ = await self._session(store)
        link = SequencerLink(session.peer, session.term, ShardsOfTerm(), carries=True)
        shard = await link.open_shard(self._incarnation, 2**40 + numbers.randrange(2**20))  # no ledger of anybody
        for _ in range(STRIKES):
            opcode = numbers.choice((protocol.OP_REPORT, protocol.OP_CARRY))
            body = numbers.choice((_garbage(numbers), self._carry(session.term, shard)))
            if opcode == protocol.OP_CARRY:
                session.peer.push(opcode, body)
            else:
                session.peer.push(opcode, _garbage(numbers))
            if session.peer.closed:
                session, _ = await self._session(store)
        session.close()
        for address in self._cluster.url.removeprefix("boki://").split(","):
            await self._appends(Address.parse(address.removeprefix("boki://")))

    def _carry(self, term: int, shard: int) -> bytes:
        """The head says that it is the second entry, though there is no first one."""
        return protocol.encode_carry(term, shard, 2, 2) + _flipped(self._numbers, _entry(term, shard, 1))

    async def _appends(self, address: Address) -> None:
        peer = await _greeted(address)
        for _ in range(STRIKES):
            body = _flipped(self._numbers, _appended())
            if peer.closed:
                peer = await _greeted(address)
            peer.push(wire.OP_APPEND, wire.encode_token({}), body)
            await asyncio.sleep(0.01)
        peer.close()

    # -- entries

    async def _entries(self, store: SimStore) -> None:
        numbers, cluster = self._numbers, self._cluster
        ledgers = LedgerClient(metadata=store, rng=SimRandom(numbers), settings=cluster.shape.ledger)
        await ledgers.start()
        session, log = await self._session(store)
        term = session.term
        custom = {"boki.role": b"data", "boki.incarnation": self._incarnation.encode()}
        settings = cluster.shape.engine
        writer = await ledgers.create(replicas=settings.replicas, acks=settings.acks, custom=custom)
        link = SequencerLink(session.peer, term, ShardsOfTerm(), carries=True)
        shard = await link.open_shard(self._incarnation, writer.ledger_id)
        lost: list[int] = []
        try:
            for entry in range(ENTRIES_OF_SHARD):
                body = _entry(term, shard, entry)
                if entry and numbers.random() < 0.6:
                    body = _flipped(numbers, body)
                if not _can_be(body, term, shard, entry):
                    lost.append(entry)
                if entry and numbers.random() < 0.4:
                    link.carry(shard, entry + 1, entry + 1, [body])
                await writer.append(body)
                link.report(shard, entry + 1, entry + 1)
            await link.barrier()
        finally:
            await self._give_up(store, log, [Lost(term, shard, entry, entry + 1, b'"poisoned"') for entry in lost])
            session.close()
            await ledgers.close()

    async def _give_up(self, store: SimStore, log: int, commands: Sequence[Lost]) -> None:
        """As an administrator who has found out: goes on until each is ordered, by whatever term."""
        for command in commands:
            ordered, refused = False, 0
            while not ordered:
                try:
                    term, address, _ = await self._sequencer(store, log)
                    await order_at(address, term, command, token=NO_TOKEN)
                    ordered = True
                except InvalidArgument:
                    refused += 1
                    ordered = refused >= REFUSALS  # it was not ordered, and what is on its way has arrived
                    await asyncio.sleep(PAUSE_S)
                except BokiError as error:
                    self._cluster.trace.add(self.process.name, "gives up later", type(error).__name__)
                    await asyncio.sleep(PAUSE_S)

    # -- ends

    async def _end(self, store: SimStore, log: int, term: int) -> None:
        """As an administrator who sees that a log has no next term: he gives up the entry that it is about."""
        numbers, cluster = SimRandom(self._numbers), self._cluster
        ledgers = LedgerClient(metadata=store, rng=numbers, settings=cluster.shape.ledger)
        await ledgers.start()
        changes = LogChanges(store, ledgers, numbers, retry_for_s=RETRY_FOR_S)
        while (await self._view(store)).term_of(log) == term:
            await asyncio.sleep(PAUSE_S)
            try:
                await changes.roll(log, suspect=term)
            except MetalogUnreadable as error:
                try:
                    decision = Decision(int(error.facts["entry"]), "poisoned", 0, of_later_version=True)
                    await changes.give_up(log, term, decision)
                    cluster.trace.add(self.process.name, "gave up", f"entry {decision.entry} of term {term}")
                except BokiError as failed:
                    cluster.trace.add(self.process.name, "gives up later", type(failed).__name__)
            except BokiError as error:
                cluster.trace.add(self.process.name, "gives up later", type(error).__name__)
        await ledgers.close()

    async def _view(self, store: SimStore) -> View:
        while True:
            try:
                return (await ensure_view(store)).view
            except BokiError:
                await asyncio.sleep(PAUSE_S)

    async def _session(self, store: SimStore) -> tuple[FollowerSession, int]:
        """A session with the sequencer of any log, as an engine has it. Raises BokiError."""
        term, address, log = await self._sequencer(store)
        session = FollowerSession(term, lambda *_: True, lambda: None)
        await session.connect(address, [self._incarnation])
        return session, log

    async def _sequencer(self, store: SimStore, log: int | None = None) -> tuple[int, Address, int]:
        """A term, where it is ordered, and its log: this one, or any, though it does not order his book."""
        view: View = (await ensure_view(store)).view
        if log is None:
            log = self._numbers.choice(sorted(view.logs))
        installed = view.installed(log)
        address = None if installed is None else await address_of(store, installed.sequencer)
        if installed is None or address is None:
            raise ProtocolError(f"log {log} has nobody to poison")
        return installed.term, address, log


async def _greeted(address: Address) -> MessagePeer:
    peer = await connect_messages(address, Deaf())
    await peer.call(wire.OP_HELLO, msgspec.msgpack.encode({"versions": [1], "features": [], "auth": None}))
    return peer


def _appended() -> bytes:
    return one_record(BOOK, WRITER, b"poison", b"data")


def _entry(term: int, shard: int, entry: int) -> bytes:
    """Entry `entry` of a shard, each of one record."""
    batch = RecordBatch.parse(memoryview(_appended()))
    return b"".join(bytes(part) for part in batch.at(term, shard, entry))


def _can_be(body: bytes, term: int, shard: int, entry: int) -> bool:
    """Whether engines can read it as that entry."""
    try:
        batch = RecordBatch.parse(memoryview(body))
    except ProtocolError:
        return False
    return Fit(term, shard, entry, entry + 1, True, False).fault_of(batch) is None


def _flipped(numbers: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(numbers.randrange(1, 4)):
        changed[numbers.randrange(len(changed))] ^= numbers.randrange(1, 256)
    return bytes(changed)


def _garbage(numbers: random.Random) -> bytes:
    return numbers.randbytes(numbers.randrange(200))


def _unparsable(numbers: random.Random, data: bytes) -> bytes:
    """What no metalog entry is: cut short, or of a version that there is not."""
    return data[: numbers.randrange(len(data))] if numbers.random() < 0.5 else bytes([99]) + data[1:]
