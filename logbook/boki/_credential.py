"""What a client sends to the engines it connects to: the cluster token, of its caller, or of a file that is read at each
connection, so that an exchanged token is found."""

from __future__ import annotations

from typing import Final

from boki_common.cluster_token import NO_TOKEN, ClusterToken, parse
from boki_common.errors import InvalidArgument, SettingsError
from boki_common.runtime.token_file import token_of


class Credential:
    """See the module."""

    def __init__(self, token: ClusterToken = NO_TOKEN, file: str = "") -> None:
        self._token: Final = token
        self._file: Final = file

    def __repr__(self) -> str:
        return f"<Credential: {self._file or self._token!r}>"

    async def current(self) -> str | None:
        """None: there is nothing to show. Raises SettingsError: the file cannot be used."""
        return (await token_of(self._file)).shown if self._file else self._token.shown


NOTHING: Final = Credential()
"""Of a client that was given none."""


def credential_of(token: str | None, token_file: str | None, found: str) -> Credential:
    """What the arguments of `boki.connect` say.

    Args:
        token: itself. token_file: or where it is.
        found: a file that the URL, or else the environment, names; "": none does. Arguments win over it.

    Raises:
        InvalidArgument: both arguments, or a token that cannot be one.
    """
    if token is not None and token_file is not None:
        raise InvalidArgument("expected token= or token_file=, found both")
    if token is None:
        return Credential(file=found if token_file is None else str(token_file))
    try:
        known = parse(token, "token=") if isinstance(token, str) else NO_TOKEN
    except SettingsError as error:
        raise InvalidArgument(str(error)) from None
    if known.valid != 1:
        raise InvalidArgument(
            f"expected one cluster token as text in token=, found {known.valid or type(token).__name__}"
        )
    return Credential(known)
