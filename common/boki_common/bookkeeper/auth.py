"""The handshake with which clients of Apache BookKeeper may begin, as a bookie without authentication answers it. Pure.

A client that has an authentication plugin sends an AUTH request first, and nothing else before its answer. A bookie that
has none answers as Apache's does by default: with the name of the plugin that is not there and an empty token, whatever
the client sent. The client then decides whether it goes on without authentication.

Bookies of ours know one more name, `IDENTITY`: to a client that sends it with the id of the bookie it means, they answer with
their own. A registration outlives its bookie by a session, and addresses are remembered longer: whoever listens there may
be another bookie by then, and what it acknowledges would count as the first one's copy.

And bookies of a cluster that has a token know `TOKEN`: there a client first sends that name with the token of the cluster, and is
answered with that name and nothing, or with that name and why it is not admitted; then the connection ends. It may send small
requests right behind it.

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
IDENTITY: Final = "BokiBookieId"
"""Name, as of a plugin, under which ids of bookies are exchanged."""
TOKEN: Final = "BokiClusterToken"
"""Name, as of a plugin, under which the cluster token is shown."""


class AuthMessage(NamedTuple):
    """One step of a handshake."""

    plugin: str
    token: bytes

    def __repr__(self) -> str:
        """Without the token, which may be the cluster's."""
        return f"AuthMessage(plugin={self.plugin!r}, {len(self.token)} bytes)"


NO_AUTHENTICATION: Final = AuthMessage(DISABLED, b"")


def greeting(bookie_id: str) -> AuthMessage:
    """What a client sends first to the bookie of that id."""
    return AuthMessage(IDENTITY, bookie_id.encode())


ADMITTED: Final = AuthMessage(TOKEN, b"")
"""What a bookie answers to the token of its cluster."""


def credential(token: str) -> AuthMessage:
    """What a client sends before all else to a bookie of a cluster with a token."""
    return AuthMessage(TOKEN, token.encode())


def refusal(why: str) -> AuthMessage:
    """What a bookie answers to who is not admitted."""
    return AuthMessage(TOKEN, why.encode())


def refused(answered: AuthMessage) -> str:
    """Why a bookie does not admit who sent it something; "": it does not say that it does not."""
    return answered.token.decode(errors="replace") if answered.plugin == TOKEN else ""


def answer(message: AuthMessage, bookie_id: str) -> AuthMessage:
    """What the bookie of that id answers to a first message; "": it has no id."""
    return greeting(bookie_id) if message.plugin == IDENTITY and bookie_id else NO_AUTHENTICATION


def is_other(answered: AuthMessage, bookie_id: str) -> bool:
    """Whether the answer to `greeting` comes from another bookie. One that knows no identities, as Apache's, is taken
    for what its registration says."""
    return answered.plugin == IDENTITY and answered.token != bookie_id.encode()


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
