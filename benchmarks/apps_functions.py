"""The functions of the applications for the two ends that `benchmarks.apps` compares with: each calls others and changes rows, by `Access`.

They do what the workflows of `examples.hotel` and `examples.movie` do, function by function as the evaluation has it, by the same rules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, cast

from bokilib.records.codec import Json, JsonObject
from examples.hotel.app import SoldOut
from examples.hotel.rules import nearest, rate_of, recommended

Change: TypeAlias = Callable[[JsonObject | None], JsonObject]
Function: TypeAlias = Callable[..., Awaitable[Any]]


class Access(Protocol):
    """What functions may do."""

    @property
    def id(self) -> str:
        """Of this call; another one for each."""

    async def call(self, function: Function, *args: Any) -> Any:
        """Another function, which runs by itself."""

    async def read(self, names: Sequence[str]) -> list[JsonObject | None]:
        """Rows."""

    async def change(self, changes: Mapping[str, Change]) -> None:
        """Makes of each row what its function says."""


# -- travel reservation


async def _near(a: Access, latitude: float, longitude: float) -> list[str]:
    (geo,) = await a.read(["geo:points"])
    return nearest(cast("list[Json]", (geo or {}).get("points", [])), (latitude, longitude))


async def _rates(a: Access, hotels: list[str], first: str, last: str) -> list[str]:
    plans = await a.read([f"rate:{hotel}" for hotel in hotels])
    priced = [(rate_of(one, first, last), hotel) for hotel, one in zip(hotels, plans, strict=True)]
    return [hotel for rate, hotel in sorted((rate, hotel) for rate, hotel in priced if rate is not None)]


async def _profiles(a: Access, hotels: list[str]) -> list[JsonObject | None]:
    return await a.read([f"profile:{hotel}" for hotel in hotels])


async def _best(a: Access, by: str, latitude: float, longitude: float) -> list[str]:
    (known,) = await a.read(["recommendation:all"])
    return recommended(cast("list[Json]", (known or {}).get("hotels", [])), by, (latitude, longitude))


async def _password(a: Access, user: str, password: str) -> bool:
    (known,) = await a.read([f"user:{user}"])
    return known is not None and known["password"] == password


async def search(a: Access, latitude: float, longitude: float, first: str, last: str) -> Json:
    """Hotels near a place, with their rates and profiles: three calls."""
    hotels = await a.call(_near, latitude, longitude)
    priced = await a.call(_rates, hotels, first, last) if hotels else []
    return cast(Json, await a.call(_profiles, priced)) if priced else []


async def recommend(a: Access, by: str, latitude: float, longitude: float) -> Json:
    """The best, with their profiles: two calls."""
    return cast(Json, await a.call(_profiles, await a.call(_best, by, latitude, longitude)))


async def login(a: Access, user: str, password: str) -> Json:
    """One call."""
    return cast(Json, await a.call(_password, user, password))


def _one_less(row: JsonObject | None) -> JsonObject:
    assert row is not None
    left = cast(int, row["left"])
    if left < 1:
        raise SoldOut("nothing is left")
    return {**row, "left": left - 1}


async def reserve(a: Access, user: str, hotel: int, flight: int) -> Json:
    """A room, a seat, a trip, then its order."""
    trip: JsonObject = {"user": user, "hotel": hotel, "flight": flight}
    await a.change({f"hotel:{hotel}": _one_less, f"flight:{flight}": _one_less, f"trip:{a.id}": lambda _: trip})
    order: JsonObject = {"user": user, "trip": a.id}
    await a.change({f"order:{a.id}": lambda _: order})
    return a.id


# -- reviews of movies


async def _id_of(a: Access, row: str) -> str:
    (known,) = await a.read([row])
    assert known is not None
    return str(known["id"])


async def _clean(a: Access, text: str) -> str:
    return " ".join(text.split())


async def compose(a: Access, user: str, title: str, rating: int, text: str) -> Json:
    """Three calls at once, then the review, the lists of both, the rating."""
    found = await asyncio.gather(a.call(_id_of, f"user:{user}"), a.call(_id_of, f"title:{title}"), a.call(_clean, text))
    id = a.id
    review: JsonObject = {"user": found[0], "movie": found[1], "rating": rating, "text": found[2]}

    def listed(row: JsonObject | None) -> JsonObject:
        return {"reviews": [*cast("list[Json]", (row or {}).get("reviews", [])), id]}

    def rated(row: JsonObject | None) -> JsonObject:
        assert row is not None
        return {**row, "reviews": cast(int, row["reviews"]) + 1, "ratings": cast(int, row["ratings"]) + rating}

    await a.change(
        {
            f"review:{id}": lambda _: review,
            f"user_reviews:{found[0]}": listed,
            f"movie_reviews:{found[1]}": listed,
            f"movie:{found[1]}": rated,
        }
    )
    return id


FUNCTIONS: Final[Mapping[str, Mapping[str, Function]]] = {
    "hotel": {"search": search, "recommend": recommend, "login": login, "reserve": reserve},
    "movie": {"compose": compose},
}
