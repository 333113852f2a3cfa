"""Sessions of HTTP clients: found again by the token that they send in `Boki-Session`.

    session = sessions.find(token)            # of the SDK
    ... calls ...
    token = sessions.token_of(session)        # for the answer, whatever became of the call

- Without a token a request belongs to the gateway's own session: it sees all that was appended through this gateway.
- A token that this gateway gave out leads back to the session it came from, so that a client's appends keep one writer per
  book: a writer for every append would fill the log's memory. What such a session has seen since only makes it see more.
- Any other token (of another gateway, of the SDK, from before a restart) makes a session that continues from it.

The tokens kept are bounded; those used longest ago go first, and cost a new session if they come back.
"""

from __future__ import annotations

from collections import OrderedDict

from boki import Client

HEADER = "Boki-Session"


class Sessions:
    """See the module. Invariant: at most `limit` tokens are kept."""

    def __init__(self, client: Client, *, limit: int) -> None:
        self._client = client
        self._limit = limit
        self._by_token: OrderedDict[str, Client] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_token)

    def find(self, token: str | None) -> Client:
        """The session of a request. Raises InvalidArgument: no token, or a damaged one."""
        if token is None:
            return self._client
        session = self._by_token.get(token)
        if session is None:
            session = self._client.session(token)
        self._keep(token, session)
        return session

    def token_of(self, session: Client) -> str:
        """What the session has seen by now; whoever sends it back is in that session again."""
        token = session.session_token()
        self._keep(token, session)
        return token

    def _keep(self, token: str, session: Client) -> None:
        self._by_token[token] = session
        self._by_token.move_to_end(token)
        if len(self._by_token) > self._limit:
            self._by_token.popitem(last=False)
