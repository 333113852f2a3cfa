"""The handshake with which clients of Apache BookKeeper may begin, as a bookie without authentication answers it. Pure.

A client that has an authentication plugin sends an AUTH request first, and nothing else before its answer. A bookie that
has none answers as Apache's does by default: with the name of the plugin that is not there and an empty token, whatever
the client sent. The client then decides whether it goes on without authentication.

The message is the same in v2 (behind the header of the frame) and in v3 (a field of the request): plugin name and token.

Source: AuthHandler, AuthProviderFactoryFactory and BookieRequestProcessor of Apache BookKeeper 4.18.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from google.protobuf import message

from boki_common.bookkeeper import bookkeeper_protocol_pb2 as pb
from boki_common.errors import ProtocolError
from boki_common.runtime.ports import Buffer

DISABLED: Final = "AuthDisabledPlugin"
"""What Apache calls the absence of a plugin."""


class AuthMessage(NamedTuple):
    """One step of a handshake."""

    plugin: str
    token: bytes


NO_AUTHENTICATION: Final = AuthMessage(DISABLED, b"")


def encode(auth: AuthMessage) -> bytes:
    return pb.AuthMessage(authPluginName=auth.plugin, payload=auth.token).SerializeToString()


def decode(data: Buffer) -> AuthMessage:
    """Raises ProtocolError: not such a message."""
    try:
        parsed = pb.AuthMessage.FromString(bytes(data))
        if not parsed.IsInitialized():
            raise message.DecodeError("a required field is missing")
    except message.DecodeError as error:
        raise ProtocolError(
            f"expected the name of an authentication plugin and a token, found {len(data)} other bytes"
        ) from error
    return AuthMessage(parsed.authPluginName, parsed.payload)
