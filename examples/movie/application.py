"""The movie reviews as the service, the load and the trial see them: `MOVIE`, its initial rows, and random requests.

| row | holds |
|---|---|
| `user:<name>` | id |
| `title:<title>` | id of the movie |
| `movie:<id>` | title, number of reviews, sum of their ratings |
| `review:<id>` | user, movie, rating, text |
| `user_reviews:<id>`, `movie_reviews:<id>` | ids of reviews, oldest first |

At the beginning there are 1,000 users and 1,000 movies without reviews. Every request is a review by a random user of a random movie, with
a text of 256 characters.
"""

from __future__ import annotations

from typing import Final

from boki_common.errors import InvalidArgument
from bokilib.records.codec import JsonObject
from examples.apps.application import Application, Mix, RandomSource, Request
from examples.movie.app import Movie
from examples.movie.checks import HOLDS, always, check

USERS: Final = 1_000
MOVIES: Final = 1_000
MIX: Final[Mix] = {"compose": 100.0}
TEXT_CHARACTERS: Final = 256
RATINGS: Final = 11
"""Ratings are 0 to 10."""
TABLES: Final = ("user", "title", "movie", "review", "user_reviews", "movie_reviews")
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def user(number: int) -> str:
    """Return the name of a user."""
    return f"username_{number}"


def title(number: int) -> str:
    """Return the title of a movie."""
    return f"Movie {number}"


def initial_rows() -> dict[str, JsonObject]:
    """Return the initial rows by name."""
    found: dict[str, JsonObject] = {}
    for number in range(USERS):
        found[f"user:{user(number)}"] = {"id": f"u{number}"}
        found[f"user_reviews:u{number}"] = {"reviews": []}
    for number in range(MOVIES):
        found[f"title:{title(number)}"] = {"id": f"m{number}"}
        found[f"movie:m{number}"] = {"title": title(number), "reviews": 0, "ratings": 0}
        found[f"movie_reviews:m{number}"] = {"reviews": []}
    return found


def request(chance: RandomSource, operation: str, id: str) -> Request:
    """Return a random review.

    Raises:
        InvalidArgument: the operation is not `compose`.
    """
    if operation != "compose":
        raise InvalidArgument(f"expected compose, found {operation!r}", found=operation)
    text = "".join(_LETTERS[chance.randrange(len(_LETTERS))] for _ in range(TEXT_CHARACTERS))
    about = (user(chance.randrange(USERS)), title(chance.randrange(MOVIES)), chance.randrange(RATINGS))
    return Request(id, operation, (*about, text))


MOVIE: Final = Application("movie", Movie, initial_rows, request, MIX, MIX, check, always, HOLDS, TABLES)
