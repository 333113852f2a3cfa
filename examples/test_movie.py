"""Tests of the movie reviews: the workflow, crashes at every operation, the checks, and a trial under kill -9.

    .venv/bin/python -m pytest examples/test_movie.py -m "not processes"        # without the trial

They are built like those of `examples.test_hotel`, which explains them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

import boki
from boki.testing import MemoryCluster
from bokiflow import Worker
from bokilib.ports import BookPort
from bokilib.records.codec import JsonObject
from bokilib.testing import UNKNOWNS, FaultKind, crash_everywhere, start_anywhere, while_alive
from examples.apps.application import Answer, Request
from examples.apps.trial import trial
from examples.movie.app import Movie, UnknownName
from examples.movie.application import MOVIE, initial_rows, request
from examples.movie.checks import check
from examples.test_hotel import data_of
from libs.tests.flow.conftest import Inline

SEVEN: dict[str, JsonObject] = {
    name: row for name, row in initial_rows().items() if name.split(":")[1] in ("username_7", "u7", "Movie 7", "m7")
}


def test_the_data_set_is_the_papers() -> None:
    kinds = Counter(name.partition(":")[0] for name in initial_rows())
    assert (kinds["user"], kinds["title"], kinds["movie"]) == (1_000, 1_000, 1_000)
    made = request(random.Random(1), "compose", "x")
    assert len(str(made.args[3])) == 256
    assert made.args[:3] != request(random.Random(2), "compose", "x").args[:3]
    with pytest.raises(boki.InvalidArgument, match="compose"):
        request(random.Random(1), "delete", "x")


async def test_a_review_is_stored_in_all_rows() -> None:
    async with MemoryCluster() as cluster:
        data = data_of((await cluster.connect()).book("movie"))
        await data.fill(SEVEN)
        movie = Movie(data)
        compose = movie.operations["compose"]
        async with Worker(movie.app, data.log, bodies=Inline()) as worker:
            before = data.log.appends
            id = await (await worker.start(compose.call("username_7", "Movie 7", 9, "very  good"), id="a")).result()
            assert data.log.appends - before <= 5, "start, two steps at once, review, end"
            again = await (await worker.start(compose.call("username_7", "Movie 7", 9, "very  good"), id="a")).result()
            assert again == id
            other = await (await worker.start(compose.call("username_7", "Movie 7", 2, "bad"), id="b")).result()
            with pytest.raises(UnknownName, match="dora"):
                await (await worker.start(compose.call("dora", "Movie 7", 2, "bad"), id="c")).result()
        rows = await data.all()
        assert rows[f"review:{id}"] == {"user": "u7", "movie": "m7", "rating": 9, "text": "very good"}
        assert rows["user_reviews:u7"] == rows["movie_reviews:m7"] == {"reviews": [id, other]}
        assert rows["movie:m7"] == {"title": "Movie 7", "reviews": 2, "ratings": 11}


# -- crashes at every operation


async def compose(book: BookPort) -> None:
    data = data_of(book)
    movie = Movie(data)

    async def work() -> None:
        async with Worker(movie.app, data.log, name="w", bodies=Inline()) as worker:
            while True:
                try:
                    call = movie.operations["compose"].call("username_7", "Movie 7", 5, "fine")
                    handle = await worker.start(call, id="x")
                    break
                except boki.OutcomeUnknown:
                    pass
            await handle.result()

    await while_alive(book, work())


async def few(book: boki.Book) -> None:
    await data_of(book).fill(SEVEN)


async def once(book: boki.Book) -> None:
    rows = await data_of(book).all()
    (id,) = [name.removeprefix("review:") for name in rows if name.startswith("review:")]
    answers = [Answer(Request("x", "compose", ("username_7", "Movie 7", 5, "fine")), id, "", 0, 1)]
    assert check(answers, rows) == []


@pytest.mark.parametrize("kinds", [("before", "after"), UNKNOWNS])
async def test_a_review_is_there_once_wherever_it_is_killed(kinds: tuple[FaultKind, ...]) -> None:
    assert (await crash_everywhere(compose, compose, once, kinds=kinds, before=few)).runs > 5


async def test_a_review_is_there_once_wherever_a_second_worker_starts() -> None:
    assert (await start_anywhere(compose, compose, once, before=few)).runs > 5


# -- checks


def answered_and_stored() -> tuple[list[Answer], dict[str, Any]]:
    rows: dict[str, Any] = deepcopy(SEVEN)
    rows["review:r"] = {"user": "u7", "movie": "m7", "rating": 5, "text": "fine"}
    rows["user_reviews:u7"] = {"reviews": ["r"]}
    rows["movie_reviews:m7"] = {"reviews": ["r"]}
    rows["movie:m7"] = {"title": "Movie 7", "reviews": 1, "ratings": 5}
    return [Answer(Request("x", "compose", ("username_7", "Movie 7", 5, "fine")), "r", "", 0.1, 1)], rows


def test_a_faultless_state_has_no_faults() -> None:
    assert check(*answered_and_stored()) == []


@pytest.mark.parametrize(
    ("change", "fault_text"),
    [
        (lambda a, r: r.pop("review:r"), "review r was acknowledged, but is lost"),
        (lambda a, r: r["review:r"].update(text="other"), "review r differs from the request"),
        (lambda a, r: r.update({"review:s": r["review:r"]}), "review s was never requested"),
        (lambda a, r: a.append(a[0]._replace(request=a[0].request._replace(id="y"))), "got the same review"),
        (lambda a, r: a.append(a[0]._replace(refused="KeyError")), "review x was refused"),
        (lambda a, r: r["user_reviews:u7"].update(reviews=[]), "the list of user u7 has review r 0 times"),
        (lambda a, r: r["movie_reviews:m7"].update(reviews=["r", "r"]), "the list of movie m7 has review r 2 times"),
        (lambda a, r: r["movie_reviews:m7"].update(reviews=["r", "q"]), "has review q 1 times, expected 0"),
        (lambda a, r: r["movie:m7"].update(ratings=6), "movie m7 counts 1 reviews with 6 points, but has 1 with 5"),
    ],
)  # fmt: skip
def test_each_fault_is_found(change: Callable[[Any, Any], object], fault_text: str) -> None:
    answers, rows = answered_and_stored()
    change(answers, rows)
    found = check(answers, rows)
    assert any(fault_text in fault for fault in found), found


@pytest.mark.processes
@pytest.mark.timeout(400)
async def test_a_short_trial(tmp_path: Path) -> None:
    found = await trial(MOVIE, tmp_path, seconds=5, least=30, seed=3)
    assert found.faults == []
    assert found.killed.total() >= 1
