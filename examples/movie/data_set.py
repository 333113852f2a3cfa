"""What there is when the application begins: 1,000 users and 1,000 movies. Pure.

| row | holds |
|---|---|
| `user:<name>` | id |
| `title:<title>` | id of the movie |
| `movie:<id>` | title; how many reviews it has, and the sum of their ratings |
| `review:<id>` | user, movie, rating, text |
| `user_reviews:<id>`, `movie_reviews:<id>` | ids of reviews, oldest first |
"""

from __future__ import annotations

from typing import Final

from bokilib.codec import JsonObject

USERS: Final = 1_000
MOVIES: Final = 1_000


def user(number: int) -> str:
    """A user's name."""
    return f"username_{number}"


def title(number: int) -> str:
    """A movie's title."""
    return f"Movie {number}"


def rows() -> dict[str, JsonObject]:
    """Every row by its name."""
    found: dict[str, JsonObject] = {}
    for number in range(USERS):
        found[f"user:{user(number)}"] = {"id": f"u{number}"}
        found[f"user_reviews:u{number}"] = {"reviews": []}
    for number in range(MOVIES):
        found[f"title:{title(number)}"] = {"id": f"m{number}"}
        found[f"movie:m{number}"] = {"title": title(number), "reviews": 0, "ratings": 0}
        found[f"movie_reviews:m{number}"] = {"reviews": []}
    return found
