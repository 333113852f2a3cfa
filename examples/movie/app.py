"""The workflow of the movie reviews.

`compose` looks up the user and the movie in two steps at once. Then one transaction writes the review, adds it to the lists of its user and
its movie, and updates the movie's rating. Cleaning the text depends on nothing but the text, so it is code of the workflow and no step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, cast

import bokiflow
from boki_common.errors import LogBookError
from bokilib.records.codec import Json
from examples.apps.row_store import RowStore, RowTransaction


class UnknownName(LogBookError):
    """There is no such user or movie; nothing was written."""


async def store_review(rows: RowTransaction, id: str, user: str, movie: str, rating: int, text: str) -> str:
    """Write a review, add it to both lists and to the movie's rating; return its id."""
    rows.put(f"review:{id}", {"user": user, "movie": movie, "rating": rating, "text": text})
    for name in (f"user_reviews:{user}", f"movie_reviews:{movie}"):
        there = await rows.value(name) or {}
        rows.put(name, {"reviews": [*cast("list[Json]", there.get("reviews", [])), id]})
    known = await rows.value(f"movie:{movie}")
    assert known is not None, f"a title names the movie {movie}, which has no row"
    reviews, ratings = cast(int, known["reviews"]), cast(int, known["ratings"])
    rows.put(f"movie:{movie}", {**known, "reviews": reviews + 1, "ratings": ratings + rating})
    return id


class Movie:
    """The workflow of the movie reviews over the rows of a row store."""

    def __init__(self, data: RowStore) -> None:
        app = bokiflow.App("movie")
        self.app: Final = app

        async def id_of(row: str) -> str:
            (known,) = await data.read([row])
            if known is None:
                raise UnknownName(f"there is no {row}")
            return str(known["id"])

        @app.step
        async def find_user(name: str) -> str:
            return await id_of(f"user:{name}")

        @app.step
        async def find_movie(title: str) -> str:
            return await id_of(f"title:{title}")

        @app.workflow
        async def compose(user: str, title: str, rating: int, text: str) -> Json:
            id = bokiflow.unique()
            found = await asyncio.gather(find_user(user), find_movie(title))
            return await data.transact(store_review, id, *found, rating, " ".join(text.split()))

        self.operations: Final[Mapping[str, bokiflow.Workflow[..., Json]]] = {"compose": compose}
