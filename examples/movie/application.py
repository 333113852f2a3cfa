"""The movie reviews, as the service, the load and the trial know it."""

from __future__ import annotations

from typing import Final

from examples.apps.application import Application
from examples.movie import data_set
from examples.movie.app import Movie
from examples.movie.checks import HOLDS, always, check
from examples.movie.mix import MIX, request

TABLES: Final = ("user", "title", "movie", "review", "user_reviews", "movie_reviews")

MOVIE: Final = Application("movie", Movie, data_set.rows, request, MIX, MIX, check, always, HOLDS, TABLES)
