"""How sequencers are found: `/boki/members/sequencer/<incarnation>`, and the direct call that asks who is there.

    {"address": "127.0.0.1:7041", "spares": [31], "log": 1}      JSON; spares: ledgers it made for a next term;
                                                                 log: the only one it serves, absent: any

A node that is absent is a hint that its process is gone, never a proof; the direct call asks the process itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec

from boki_common import limits
from boki_common.cluster_token import ClusterToken
from boki_common.errors import (
    DECODE_FAULTS,
    AccessError,
    BokiError,
    CorruptData,
    InvalidArgument,
    NetworkError,
    NoNode,
    ProtocolError,
)
from boki_common.ids import Position
from boki_common.logs import get_logger
from boki_common.metadata.membership import member_path, members
from boki_common.metadata.store import MetadataStore
from boki_common.net.connection import Address
from boki_common.net.messages import MessagePeer, connect_messages
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.entries.permissions import ADMINISTRATOR, PARTICIPANT
from boki_metalog.entries.progress import Order
from boki_metalog.terms.metadata_tree import SEQUENCER_ROLE

_log = get_logger("sequencer_member")


class SequencerMember(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a sequencer lists of itself."""

    address: str
    spares: tuple[int, ...]
    log: int | None = None


def sequencer_path(incarnation: str) -> str:
    return member_path(SEQUENCER_ROLE, incarnation)


async def address_of(metadata: MetadataStore, incarnation: str) -> Address | None:
    """Where a sequencer listens, as it lists itself; None when it is not listed. Raises MetadataUnavailable: the store is away;
    CorruptData: what is listed cannot be read."""
    path = sequencer_path(incarnation)
    try:
        value = (await metadata.get(path)).value
    except NoNode:
        return None
    try:
        return Address.parse(msgspec.json.decode(value, type=SequencerMember).address)
    except (*DECODE_FAULTS, InvalidArgument) as error:
        raise CorruptData(f"expected the address of a sequencer in {path}, found {value[:100]!r}", path=path) from error


async def sequencer_members(metadata: MetadataStore) -> dict[str, SequencerMember]:
    """All sequencers that are listed, by incarnation. Raises MetadataUnavailable, CorruptData."""
    found = {}
    for incarnation, value in (await members(metadata, SEQUENCER_ROLE)).items():
        try:
            found[incarnation] = msgspec.convert(value, SequencerMember)
        except msgspec.ValidationError as error:
            path = sequencer_path(incarnation)
            raise CorruptData(f"expected a sequencer in {path}, found {value}: {error}", path=path) from error
    return found


async def living_sequencers(
    metadata: MetadataStore, *, timeout_s: float, token: ClusterToken
) -> dict[str, SequencerMember]:
    """Those that are listed with a spare and answer a direct call, asked at once; by incarnation."""
    listed = {one: member for one, member in (await sequencer_members(metadata)).items() if member.spares}
    answers = await asyncio.gather(*(_is_there(one, member, timeout_s, token) for one, member in listed.items()))
    return {one: member for (one, member), there in zip(listed.items(), answers, strict=True) if there}


async def _is_there(incarnation: str, member: SequencerMember, timeout_s: float, token: ClusterToken) -> bool:
    try:
        welcome = await ask_sequencer(Address.parse(member.address), timeout_s=timeout_s, token=token)
    except AccessError as error:
        _log.warning("a sequencer is passed over", incarnation=incarnation, error=error)
        return False
    except (NetworkError, ProtocolError):
        return False
    return welcome.incarnation == incarnation


async def ask_to_yield(address: Address, term: int, *, timeout_s: float, token: ClusterToken, role: str) -> None:
    """A direct call: end the term. Raises what keeps it from being ended and its metalog from being closed that way."""
    async with _caller(address, timeout_s) as call:
        hello = call(protocol.OP_HELLO, protocol.encode_hello(token=token, role=role))
        await asyncio.gather(hello, call(protocol.OP_YIELD, protocol.encode_term(term)))


async def order_at(address: Address, term: int, command: Order, *, token: ClusterToken) -> Position:
    """A direct call of an administrator: have a command ordered. Raises as `SequencerLink.order`; Unauthenticated, NotPermitted."""
    async with _caller(address, limits.CALL_TIMEOUT_S) as call:
        await call(protocol.OP_HELLO, protocol.encode_hello(token=token, role=ADMINISTRATOR))
        return protocol.decode_position(await call(protocol.OP_ORDER, protocol.encode_order(term, command)))


async def ask_sequencer(address: Address, *, timeout_s: float, token: ClusterToken) -> protocol.Welcome:
    """A direct call: who is there, and does it serve? Raises NetworkError: no answer in time; ProtocolError, Unauthenticated."""
    async with _caller(address, timeout_s) as call:
        hello = protocol.encode_hello(token=token, role=PARTICIPANT)
        return protocol.decode_welcome(await call(protocol.OP_HELLO, hello))


@asynccontextmanager
async def _caller(address: Address, timeout_s: float) -> AsyncIterator[Callable[..., Coroutine[Any, Any, memoryview]]]:
    """`MessagePeer.call` of a connection, each within the time."""
    peer = await connect_messages(address, _Nobody(), timeout_s=timeout_s)
    try:
        yield partial(peer.call, timeout_s=timeout_s)
    finally:
        peer.close()


class _Nobody:
    """A peer that only asks a question takes no pushes."""

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        """TERM_OVER may come; the answer reports it too."""

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None:
        """The question fails by itself."""
