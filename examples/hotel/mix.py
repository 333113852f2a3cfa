"""Who asks what how often, as the evaluation has it: 60 % search, 39 % recommend, 0.5 % log in, 0.5 % reserve. Pure."""

from __future__ import annotations

from typing import Final

from boki_common.errors import InvalidArgument
from examples.apps.application import Mix, RandomSource, Request
from examples.hotel.data_set import ROOMS, USERS

MIX: Final[Mix] = {"search": 60.0, "recommend": 39.0, "login": 0.5, "reserve": 0.5}
TRIAL_MIX: Final[Mix] = {"search": 25.0, "recommend": 15.0, "login": 5.0, "reserve": 55.0}
"""Of a trial, which is about what is written."""
FIRST_DAY: Final = 9
LAST_DAY: Final = 24


def request(chance: RandomSource, operation: str, id: str) -> Request:
    """One request, by chance. Raises InvalidArgument."""
    if operation == "search":
        first = FIRST_DAY + chance.randrange(LAST_DAY - FIRST_DAY)
        last = first + 1 + chance.randrange(LAST_DAY - first)
        return Request(id, operation, (*_place(chance), f"2015-04-{first:02}", f"2015-04-{last:02}"))
    if operation == "recommend":
        return Request(id, operation, (("dis", "rate", "price")[chance.randrange(3)], *_place(chance)))
    if operation == "login":
        number = chance.randrange(USERS)
        return Request(id, operation, (f"Cornell_{number}", str(number) * 10))
    if operation == "reserve":
        user = f"Cornell_{chance.randrange(USERS)}"
        return Request(id, operation, (user, chance.randrange(ROOMS), chance.randrange(ROOMS)))
    raise InvalidArgument(f"expected one of {sorted(MIX)}, found {operation!r}", found=operation)


def _place(chance: RandomSource) -> tuple[float, float]:
    latitude = 38.0235 + (chance.randrange(482) - 240.5) / 1_000
    longitude = -122.095 + (chance.randrange(326) - 157.0) / 1_000
    return latitude, longitude
