"""The cluster token: one secret that everybody who speaks to a cluster shows, and how it is compared. Pure.

A token is a line of printable ASCII without spaces, 16 to 512 characters. A file holds one of them, or two while they are
exchanged: both are accepted, and the first is what this process shows.

    token = parse(text, "/etc/boki/token")         # `runtime.token_file` reads files
    token.shown                                    # what goes into HELLO, the AUTH slot of bookies, or `Authorization`
    token.admit(hello.auth, "this engine")         # raises Unauthenticated: who lacks what, and what to do

Rules:
- A comparison takes the same time for every wrong token, and looks at all tokens that are valid.
- No token is ever part of a repr, a log line, an error or a metric.
- A cluster without a token (`NO_TOKEN`) admits everybody, also those who show one: so clients can be given it first.
- A `ClusterToken` is shared by everything in a process. `renew` puts what the file holds now into it; connections that were
  accepted before stay.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Final

from boki_common.errors import SettingsError, Unauthenticated

TOKENS: Final = 2
"""As many are valid at once: the one in use, and the one that replaces it."""
TOKEN_CHARACTERS_LEAST: Final = 16
TOKEN_CHARACTERS_MOST: Final = 512
FILE_BYTES: Final = TOKENS * (TOKEN_CHARACTERS_MOST + 64)
"""A file that is longer holds something else."""
TO_MAKE_ONE: Final = "openssl rand -hex 32"
HOW_TO_SHOW: Final = (
    "name its file: --token-file FILE, BOKI_TOKEN_FILE, token_file= of boki.connect or ?token_file= in the URL"
)


class ClusterToken:
    """The tokens valid now. See the module."""

    __slots__ = ("_tokens",)

    def __init__(self, tokens: Sequence[str]) -> None:
        """`tokens`: at most two, checked by `parse`; none: nobody is asked for one."""
        assert len(tokens) <= TOKENS, "the one in use and its successor"
        self._tokens = tuple(token.encode("ascii") for token in tokens)

    def __repr__(self) -> str:
        return f"<ClusterToken: {len(self._tokens)} valid>"

    def __reduce__(self) -> str:
        raise TypeError("a cluster token is not pickled: it would leave this process")

    @property
    def asks(self) -> bool:
        """Whether a token has to be shown here."""
        return bool(self._tokens)

    @property
    def valid(self) -> int:
        """How many tokens are."""
        return len(self._tokens)

    @property
    def shown(self) -> str | None:
        """What this process shows to others; None: it has nothing to show. Goes onto the wire and nowhere else."""
        return self._tokens[0].decode("ascii") if self._tokens else None

    def accepts(self, shown: str | bytes) -> bool:
        """Whether that is a valid token; always, if none is asked for. In constant time over all of them."""
        given = shown.encode("utf-8", "surrogatepass") if isinstance(shown, str) else shown
        found = not self._tokens
        for token in self._tokens:
            found |= hmac.compare_digest(token, given)
        return found

    def admit(self, shown: object, verifier: str) -> None:
        """Lets pass who shows a valid token.

        Args:
            shown: what came in the place of a token, of whatever type; None and empty: nothing.
            verifier: who asks for it, for the message: "this engine".

        Raises:
            Unauthenticated: nothing was shown, or something else.
        """
        if not self._tokens:
            return
        if shown is None or shown in ("", b""):
            raise Unauthenticated(
                f"{verifier} asks for a cluster token, and none was shown: {HOW_TO_SHOW}", lacks="token of who connects"
            )
        if not isinstance(shown, (str, bytes)) or not self.accepts(shown):
            raise Unauthenticated(
                f"{verifier} asks for a cluster token, and was shown one that is not valid there: compare the file of who "
                "connects with the file of who asks; while a token is exchanged both files hold both",
                lacks="valid token of who connects",
            )

    def renew(self, tokens: ClusterToken) -> bool:
        """Takes over what a file holds now; whether that is anything else than before."""
        assert self.asks and tokens.asks, "whether a token is asked for is decided when a process starts"
        changed = self._tokens != tokens._tokens
        self._tokens = tokens._tokens
        return changed


NO_TOKEN: Final = ClusterToken(())
"""Of a cluster that asks nobody."""


def parse(text: str, source: str) -> ClusterToken:
    """Reads what a file holds.

    Args:
        text: one or two lines that are not empty; blanks around them do not count.
        source: of the text, for errors.

    Raises:
        SettingsError: no token, too many, too short, too long, or characters that are none of a token's.
    """
    lines = [line.strip(" \t\r") for line in text.split("\n")]
    tokens = [line for line in lines if line]
    if not 1 <= len(tokens) <= TOKENS:
        found = f"{len(tokens)} lines" if tokens else "nothing"
        raise SettingsError(
            f"{source}: expected a cluster token in one line, or two of them in two lines, found {found}; make one: "
            f"{TO_MAKE_ONE} > FILE"
        )
    for number, token in enumerate(tokens, 1):
        which = f"{source}: line {number}" if len(tokens) > 1 else source
        if not TOKEN_CHARACTERS_LEAST <= len(token) <= TOKEN_CHARACTERS_MOST:
            raise SettingsError(
                f"{which}: expected a cluster token of {TOKEN_CHARACTERS_LEAST} to {TOKEN_CHARACTERS_MOST} characters, "
                f"found {len(token)}; make one: {TO_MAKE_ONE} > FILE"
            )
        if not all("!" <= character <= "~" for character in token):
            raise SettingsError(
                f"{which}: expected a cluster token of printable ASCII without spaces, found other characters; make one: "
                f"{TO_MAKE_ONE} > FILE"
            )
    if len(tokens) > 1 and tokens[0] == tokens[1]:
        tokens = tokens[:1]
    return ClusterToken(tokens)
