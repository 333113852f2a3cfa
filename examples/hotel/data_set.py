"""The rows at the beginning, as in DeathStarBench. Pure.

There are 80 hotel locations around San Francisco, rates for every third hotel, recommendations of 79, 501 users, and 100 hotels and 100
flights to book.

| row | holds |
|---|---|
| `geo:points` | locations: [[hotel, latitude, longitude], …] |
| `rate:<hotel>` | plans of a hotel: dates and price |
| `profile:<hotel>` | name, location |
| `recommendation:all` | data of recommendations: [[hotel, latitude, longitude, rate, price], …] |
| `user:<name>` | password |
| `hotel:<number>`, `flight:<number>` | capacity, and how much of it is left |
| `trip:<id>` | user, hotel and flight |
| `order:<id>` | user and trip to pay |

In the evaluation capacities are not counted, so nothing sells out. Here they are.
"""

from __future__ import annotations

from typing import Final

from bokilib.records.codec import Json, JsonObject

POINTS: Final = 80
PROFILES: Final = 79
USERS: Final = 501
ROOMS: Final = 100
CAPACITY: Final = 10

_NEAR: Final = (
    (37.7867, -122.4112),
    (37.7854, -122.4005),
    (37.7854, -122.4071),
    (37.7936, -122.3930),
    (37.7831, -122.4181),
    (37.7863, -122.4015),
)
_PRICES: Final = ((120, 140), (124, 144), (132, 158), (232, 258), (109, 123))


def location(hotel: int) -> tuple[float, float]:
    """Return the latitude and longitude of a hotel."""
    if hotel <= len(_NEAR):
        return _NEAR[hotel - 1]
    return 37.7835 + hotel / 500 * 3, -122.41 + hotel / 500 * 4


def rows(capacity: int = CAPACITY) -> dict[str, JsonObject]:
    """Return the rows by name; `capacity` is that of each hotel and each flight."""
    points: list[Json] = [[str(hotel), *location(hotel)] for hotel in range(1, POINTS + 1)]
    recommended: list[Json] = []
    found: dict[str, JsonObject] = {"geo:points": {"points": points}}
    for hotel in range(1, PROFILES + 1):
        latitude, longitude = location(hotel)
        price, inclusive = _PRICES[(hotel - 1) % len(_PRICES)]
        recommended.append([str(hotel), latitude, longitude, float(price + hotel % 7), float(inclusive)])
        found[f"profile:{hotel}"] = {"name": f"Hotel {hotel}", "latitude": latitude, "longitude": longitude}
        if hotel <= 3 or hotel % 3 == 0:
            plan: JsonObject = {
                "from": "2015-04-09",
                "to": "2015-04-17" if hotel % 2 else "2015-04-24",
                "rate": price,
                "inclusive": inclusive,
            }
            found[f"rate:{hotel}"] = {"plans": [plan]}
    found["recommendation:all"] = {"hotels": recommended}
    for number in range(USERS):
        found[f"user:Cornell_{number}"] = {"password": str(number) * 10}
    for number in range(ROOMS):
        found[f"hotel:{number}"] = {"capacity": capacity, "left": capacity}
        found[f"flight:{number}"] = {"capacity": capacity, "left": capacity}
    return found
