"""Has a connection to a bookie that asks for the cluster token, until the token was shown; then the requests' handler has it.

The first frame, in v2 or v3, is a handshake that shows the token (`boki_common.bookkeeper.auth`). It is answered, and whatever
came behind it in the same read is served. Anything else is answered UNAUTHORIZED, as Apache's bookie answers a client that has
not authenticated itself, and the connection ends: nothing was read, fenced or stored for it.
"""

from __future__ import annotations

from boki_bookie.serve.server import BookieConnection, BookieServer
from boki_common.bookkeeper import auth, v2, v3
from boki_common.bookkeeper.auth import AuthMessage
from boki_common.bookkeeper.status import V2Status
from boki_common.bookkeeper.v3_messages import AuthResponse
from boki_common.cluster_token import ClusterToken
from boki_common.errors import BokiError, Unauthenticated
from boki_common.logs import get_logger
from boki_common.net.connection import FrameConnection, FrameHandler
from boki_common.runtime.ports import Buffer

_log = get_logger("bookie")


def admitting(server: BookieServer, token: ClusterToken, connection: FrameConnection) -> FrameHandler:
    """The handler of a new connection."""
    return AuthGate(server, token, connection) if token.asks else server.connected(connection)


class AuthGate:
    """See the module. A `FrameHandler`."""

    def __init__(self, server: BookieServer, token: ClusterToken, connection: FrameConnection) -> None:
        self._server = server
        self._token = token
        self._connection = connection

    def frames_received(self, frames: list[memoryview]) -> None:
        """Raises ProtocolError for a first frame that is none of either protocol."""
        first = frames[0]
        request = v2.decode_request(first)
        if first[0] == v3.FIRST_BYTE:
            of_v3 = v3.decode_auth_request(first)
            if of_v3 is None:
                self._end(v3.encode_refusal(first, V2Status.UNAUTHORIZED))
                return
            refusal = self._refusal(of_v3.message)
            status = V2Status.OK if refusal is None else V2Status.UNAUTHORIZED
            answer = v3.encode_response(AuthResponse(of_v3.txn_id, status, refusal or auth.ADMITTED))
        elif isinstance(request, v2.AuthRequest):
            refusal = self._refusal(request.message)
            answer = v2.encode_auth(refusal or auth.ADMITTED)
        else:
            self._end(v2.encode_refusal(request, V2Status.UNAUTHORIZED))
            return
        if refusal is not None:
            self._end(answer)
            return
        self._connection.send(answer)
        self._connection.introduced()
        handler: BookieConnection = self._server.connected(self._connection)
        self._connection.handler = handler
        if len(frames) > 1:
            handler.frames_received(frames[1:])

    def connection_lost(self, error: BokiError | None) -> None:
        """Nothing was taken."""

    def _refusal(self, message: AuthMessage) -> AuthMessage | None:
        shown = message.token if message.plugin == auth.TOKEN else b""
        try:
            self._token.admit(shown, f"bookie {self._server.bookie_id}")
        except Unauthenticated as error:
            return auth.refusal(str(error))
        return None

    def _end(self, answer: Buffer) -> None:
        _log.debug("a client did not show the cluster token", peer=self._connection.peer)
        self._connection.send(answer)
        self._connection.close()
