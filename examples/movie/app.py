"""The workflow of the movie reviews.

compose     two steps at once: the user, the movie · transaction: the review, in the lists of both, and the rating

What is cleaned of the text follows from the text alone: it is code of the workflow, and no step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, cast

import bokiflow
from boki_common.errors import LogBookError
from bokilib.codec import Json
from examples.apps.row_store import RowStore, RowTransaction


class UnknownName(LogBookError):
    """There is no such user or movie. Nothing was written."""


async def store_review(rows: RowTransaction, id: str, user: str, movie: str, rating: int, text: str) -> str:
    """A review is in three places and in the movie's rating, or in none."""
    rows.put(f"review:{id}", {"user": user, "movie": movie, "rating": rating, "text": text})
    for name in (f"user_reviews:{user}", f"movie_reviews:{movie}"):
        there = await rows.value(name) or {}
        rows.put(name, {"reviews": [*cast("list[Json]", there.get("reviews", [])), id]})
    known = await rows.value(f"movie:{movie}")
    assert known is not None, f"a title names the movie {movie}, which is not there"
    reviews, ratings = cast(int, known["reviews"]), cast(int, known["ratings"])
    rows.put(f"movie:{movie}", {**known, "reviews": reviews + 1, "ratings": ratings + rating})
    return id


class Movie:
    """The application over data of anywhere."""

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
