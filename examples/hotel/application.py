"""The travel reservation as the service, the load and the trial see it: `HOTEL`, and random requests in the mix of the evaluation.

The evaluation's mix is 60 % searches, 39 % recommendations, 0.5 % logins and 0.5 % reservations. A trial is about what is written, so more
than half of its requests are reservations.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from boki_common.errors import InvalidArgument
from examples.apps.application import Application, Mix, RandomSource, Request
from examples.hotel import data_set
from examples.hotel.app import Hotel
from examples.hotel.checks import HOLDS, always, check
from examples.hotel.data_set import ROOMS, USERS

MIX: Final[Mix] = {"search": 60.0, "recommend": 39.0, "login": 0.5, "reserve": 0.5}
TRIAL_MIX: Final[Mix] = {"search": 25.0, "recommend": 15.0, "login": 5.0, "reserve": 55.0}
FIRST_DAY: Final = 9
"""Of April 2015, as in DeathStarBench."""
LAST_DAY: Final = 24
TRIAL_CAPACITY: Final = 25
"""Rooms of a hotel and seats of a flight in a trial: some sell out, most do not."""
TABLES: Final = ("geo", "rate", "profile", "recommendation", "user", "hotel", "flight", "trip", "order")


def request(chance: RandomSource, operation: str, id: str) -> Request:
    """Return a random request for an operation.

    Raises:
        InvalidArgument: the application has no such operation.
    """
    if operation == "search":
        first = FIRST_DAY + chance.randrange(LAST_DAY - FIRST_DAY)
        last = first + 1 + chance.randrange(LAST_DAY - first)
        return Request(id, operation, (*_location(chance), f"2015-04-{first:02}", f"2015-04-{last:02}"))
    if operation == "recommend":
        return Request(id, operation, (("dis", "rate", "price")[chance.randrange(3)], *_location(chance)))
    if operation == "login":
        number = chance.randrange(USERS)
        return Request(id, operation, (f"Cornell_{number}", str(number) * 10))
    if operation == "reserve":
        user = f"Cornell_{chance.randrange(USERS)}"
        return Request(id, operation, (user, chance.randrange(ROOMS), chance.randrange(ROOMS)))
    raise InvalidArgument(f"expected one of {sorted(MIX)}, found {operation!r}", found=operation)


def _location(chance: RandomSource) -> tuple[float, float]:
    """Return a random latitude and longitude near San Francisco."""
    latitude = 38.0235 + (chance.randrange(482) - 240.5) / 1_000
    longitude = -122.095 + (chance.randrange(326) - 157.0) / 1_000
    return latitude, longitude


HOTEL: Final = Application(
    "hotel", Hotel, partial(data_set.rows, TRIAL_CAPACITY), request, MIX, TRIAL_MIX, check, always, HOLDS, TABLES
)
