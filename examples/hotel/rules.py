"""The rules of the travel reservation: distances, rates and recommendations. Pure.

Hotels are rows of the form that `examples.hotel.data_set` describes; a location is a pair (latitude, longitude) in degrees.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import asin, cos, radians, sin, sqrt
from typing import Any, Final, cast

from boki_common.errors import InvalidArgument
from bokilib.records.codec import Json, JsonObject

EARTH_KM: Final = 6_371.0
NEAR_KM: Final = 10.0
NEAREST: Final = 5


def distance_km(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Return the distance of two locations along the surface of the earth, by the haversine formula."""
    (latitude, longitude), (other_latitude, other_longitude) = one, other
    across = sin(radians(other_latitude - latitude) / 2) ** 2
    along = sin(radians(other_longitude - longitude) / 2) ** 2
    return 2 * EARTH_KM * asin(sqrt(across + cos(radians(latitude)) * cos(radians(other_latitude)) * along))


def nearest(points: Sequence[Json], at: tuple[float, float]) -> list[str]:
    """Return up to five hotels within ten kilometres, the nearest first."""
    by_distance = sorted((distance_km(at, (point[1], point[2])), point[0]) for point in cast("Sequence[Any]", points))
    return [hotel for far, hotel in by_distance[:NEAREST] if far <= NEAR_KM]


def rate_of(plans: JsonObject | None, first: str, last: str) -> float | None:
    """Return the lowest rate of a hotel among plans that cover all of these days, or None without such a plan."""
    if plans is None:
        return None
    fitting = [
        plan["rate"] for plan in cast("list[Any]", plans["plans"]) if plan["from"] <= first and last <= plan["to"]
    ]
    return min(fitting, default=None)


def recommended(hotels: Iterable[Json], by: str, at: tuple[float, float]) -> list[str]:
    """Return the best hotels by one criterion; several if they tie.

    Args:
        hotels: rows of `recommendation:all`.
        by: `dis` for the shortest distance, `rate` for the highest rate, `price` for the lowest price.
        at: location of the user.

    Raises:
        InvalidArgument: there is no such criterion.
    """
    known: list[Any] = list(hotels)
    if by == "dis":
        scores = {one[0]: distance_km(at, (one[1], one[2])) for one in known}
    elif by == "rate":
        scores = {one[0]: -one[3] for one in known}
    elif by == "price":
        scores = {one[0]: one[4] for one in known}
    else:
        raise InvalidArgument(f"expected one of dis, rate, price, found {by!r}", found=by)
    best = min(scores.values())
    return sorted(hotel for hotel, score in scores.items() if score == best)
