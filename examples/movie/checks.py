"""What has to be true of reviews in the end, whatever was killed meanwhile. Pure: of answers and all rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from bokilib.codec import JsonObject
from examples.apps.application import Answer

HOLDS: Final = (
    "every review that was acknowledged is there as it was written; nothing is there that nobody wrote, or twice",
    "every review is once in the list of its user and once in that of its movie, and lists name nothing else",
    "a movie's rating counts each of its reviews once",
)


def check(answers: Iterable[Answer], rows: Mapping[str, JsonObject]) -> list[str]:
    """What is wrong."""
    reviews = {name.removeprefix("review:"): row for name, row in rows.items() if name.startswith("review:")}
    return [*_answered(answers, reviews, rows), *always(rows)]


def always(rows: Mapping[str, JsonObject]) -> list[str]:
    """What is wrong with a snapshot, whatever is under way."""
    reviews = {name.removeprefix("review:"): row for name, row in rows.items() if name.startswith("review:")}
    return [*_lists(reviews, rows), *_ratings(reviews, rows)]


def _answered(
    answers: Iterable[Answer], reviews: Mapping[str, JsonObject], rows: Mapping[str, JsonObject]
) -> list[str]:
    faults = []
    known: dict[str, str] = {}
    for answer in answers:
        id = str(answer.value)
        if answer.refused:
            faults.append(f"review {answer.request.id} was refused: {answer.refused}")
            continue
        if id in known:
            faults.append(f"{answer.request.id} and {known[id]} were given one review: {id}")
        known[id] = answer.request.id
        user, title, rating, text = answer.request.args
        expected = {
            "user": rows[f"user:{user}"]["id"],
            "movie": rows[f"title:{title}"]["id"],
            "rating": rating,
            "text": text,
        }
        if id not in reviews:
            faults.append(f"review {id} was acknowledged, and is lost")
        elif reviews[id] != expected:
            faults.append(f"review {id} is not what was written")
    return faults + [f"nobody wrote review {id}" for id in sorted(reviews.keys() - known.keys())]


def _lists(reviews: Mapping[str, JsonObject], rows: Mapping[str, JsonObject]) -> list[str]:
    faults = []
    for kind in ("user", "movie"):
        listed: Counter[tuple[str, str]] = Counter()
        for name, row in rows.items():
            if name.startswith(f"{kind}_reviews:"):
                listed.update((name.partition(":")[2], id) for id in cast("list[str]", row["reviews"]))
        due = Counter((str(review[kind]), id) for id, review in reviews.items())
        for whose, id in sorted((listed - due) + (due - listed)):
            found = listed[whose, id]
            faults.append(f"the list of {kind} {whose} has review {id} {found} times, expected {due[whose, id]}")
    return faults


def _ratings(reviews: Mapping[str, JsonObject], rows: Mapping[str, JsonObject]) -> list[str]:
    faults = []
    counts: Counter[Any] = Counter(review["movie"] for review in reviews.values())
    sums: Counter[Any] = Counter()
    for review in reviews.values():
        sums[review["movie"]] += cast(int, review["rating"])
    for name, row in rows.items():
        id = name.removeprefix("movie:")
        if name.startswith("movie:") and (row["reviews"], row["ratings"]) != (counts[id], sums[id]):
            faults.append(
                f"movie {id} has {counts[id]} reviews of {sums[id]}, and counts {row['reviews']} of {row['ratings']}"
            )
    return faults
