"""Who asks what: nothing but reviews, of any user about any movie, with a text of 256 characters. Pure."""

from __future__ import annotations

from typing import Final

from boki_common.errors import InvalidArgument
from examples.apps.application import Mix, RandomSource, Request
from examples.movie.data_set import MOVIES, USERS, title, user

MIX: Final[Mix] = {"compose": 100.0}
TEXT_CHARACTERS: Final = 256
RATINGS: Final = 11
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def request(chance: RandomSource, operation: str, id: str) -> Request:
    """One request, by chance. Raises InvalidArgument."""
    if operation != "compose":
        raise InvalidArgument(f"expected compose, found {operation!r}", found=operation)
    text = "".join(_LETTERS[chance.randrange(len(_LETTERS))] for _ in range(TEXT_CHARACTERS))
    about = (user(chance.randrange(USERS)), title(chance.randrange(MOVIES)), chance.randrange(RATINGS))
    return Request(id, operation, (*about, text))
