"""Connects to an engine as SDKs do, and one engine to another, which makes sure who answers."""

from __future__ import annotations

from typing import Final

import msgspec

from boki_common import limits
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.engine import engine_protocol as wire
from boki_common.errors import DECODE_FAULTS, ConnectionLost, InvalidArgument, ProtocolError, Unreachable
from boki_common.net.connection import Address
from boki_common.net.messages import MessageHandler, MessagePeer, connect_messages
from boki_metalog.terms.index_slots import EngineMember

_NO_ONES: Final = ("0.0.0.0", "::")


class Welcome(msgspec.Struct):
    """What matters of an engine's answer to HELLO."""

    engine: str = ""
    features: list[str] = []


async def greet_engine(
    address: Address, handler: MessageHandler, role: str, *features: str, token: ClusterToken
) -> tuple[MessagePeer, Welcome]:
    """A connection to an engine, and its answer to HELLO. The caller closes it. Raises as `dial_engine`."""
    peer = await connect_messages(address, handler)
    hello = {"versions": [wire.PROTOCOL_VERSION], "features": list(features), "auth": token.shown, "role": role}
    try:
        answer = await peer.call(wire.OP_HELLO, msgspec.msgpack.encode(hello), timeout_s=limits.CONNECT_TIMEOUT_S)
        return peer, msgspec.msgpack.decode(answer, type=Welcome)
    except DECODE_FAULTS as error:
        peer.close()
        raise ProtocolError(f"expected an engine at {address}, found something else: {error}") from error
    except BaseException:
        peer.close()
        raise


async def dial_engine(
    engine: EngineMember, text: str, handler: MessageHandler, *features: str, token: ClusterToken = NO_TOKEN
) -> tuple[MessagePeer, Welcome]:
    """A connection to that engine at one of its addresses, and its answer to HELLO. The caller closes it.

    Raises:
        InvalidArgument: the address is no address for others. ProtocolError: who answers is no engine.
        Unreachable, NetworkError: nobody answers, or another engine does. Unauthenticated: it asks for another token.
    """
    address = Address.parse(text)
    if address.host in _NO_ONES:
        raise InvalidArgument(f"{address} is no address for others", found=text)
    peer, found = await greet_engine(address, handler, wire.ROLE_ENGINE, *features, token=token)
    if found.engine != engine.incarnation:
        peer.close()
        raise Unreachable(f"expected engine {engine.incarnation} at {address}, found {found.engine}")
    if peer.closed:
        raise ConnectionLost(f"the connection to {address} ended at once", peer=text)
    return peer, found
