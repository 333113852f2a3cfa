"""The promises of the movie reviews, checked against all rows and the answers that clients got. Pure.

    faults = check(answers, rows)         # sentences; [] if every promise holds

`always` holds in every snapshot, also while requests are in progress. `check` holds once every request has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from bokilib.records.codec import JsonObject
from examples.apps.application import Answer

HOLDS: Final = (
    "every acknowledged review is stored once, as written; there is no review that was never requested",
    "every review is once in the list of its user and once in that of its movie; the lists have no other entries",
    "a movie's rating counts each of its reviews once",
)


def check(answers: Iterable[Answer], rows: Mapping[str, JsonObject]) -> list[str]:
    """Return the faults in the rows after all requests ended."""
    reviews = {name.removeprefix("review:"): row for name, row in rows.items() if name.startswith("review:")}
    return [*_answered(answers, reviews, rows), *always(rows)]


def always(rows: Mapping[str, JsonObject]) -> list[str]:
    """Return the faults that a snapshot has even while requests are in progress."""
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
            faults.append(f"requests {answer.request.id} and {known[id]} got the same review: {id}")
        known[id] = answer.request.id
        user, title, rating, text = answer.request.args
        expected = {
            "user": rows[f"user:{user}"]["id"],
            "movie": rows[f"title:{title}"]["id"],
            "rating": rating,
            "text": text,
        }
        if id not in reviews:
            faults.append(f"review {id} was acknowledged, but is lost")
        elif reviews[id] != expected:
            faults.append(f"review {id} differs from the request")
    return faults + [f"review {id} was never requested" for id in sorted(reviews.keys() - known.keys())]


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
                f"movie {id} counts {row['reviews']} reviews with {row['ratings']} points, "
                f"but has {counts[id]} with {sums[id]}"
            )
    return faults
