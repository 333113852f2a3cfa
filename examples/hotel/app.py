"""The workflows of the travel reservation.

| workflow | does |
|---|---|
| `search` | one step: the hotels near a location, their rates, their profiles |
| `recommend` | one step: the best hotels, their profiles |
| `login` | one step: compare the password |
| `reserve` | one transaction that books a room, a seat and the trip, or nothing; then a child workflow for the order |

A workflow that only reads is one step, so it costs two records of the log: its start, and the step with the end. The transaction's rows and
its outcome as a step are one record, so a trip is never half booked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

import bokiflow
from boki_common.errors import LogBookError
from bokilib.records.codec import Json, JsonObject
from examples.apps.row_store import RowStore, RowTransaction
from examples.hotel.rules import nearest, rate_of, recommended


class SoldOut(LogBookError):
    """The hotel has no room left, or the flight no seat; nothing was booked."""


async def book_trip(rows: RowTransaction, id: str, user: str, hotel: int, flight: int) -> str:
    """Book a room and a seat within a transaction, and return the trip's id.

    Raises:
        SoldOut: one of them is sold out; the transaction writes nothing.
    """
    for name in (f"hotel:{hotel}", f"flight:{flight}"):
        there = await rows.value(name)
        assert there is not None, f"there is no {name}"
        left = cast(int, there["left"])
        if left < 1:
            raise SoldOut(f"nothing is left of {name}")
        rows.put(name, {**there, "left": left - 1})
    rows.put(f"trip:{id}", {"user": user, "hotel": hotel, "flight": flight})
    return id


async def write_order(rows: RowTransaction, id: str, user: str) -> None:
    """Write the order of a trip, which the user is to pay."""
    rows.put(f"order:{id}", {"user": user, "trip": id})


class Hotel:
    """The workflows of the travel reservation over the rows of a row store."""

    def __init__(self, data: RowStore) -> None:
        app = bokiflow.App("hotel")
        self.app: Final = app

        async def near(latitude: float, longitude: float) -> list[str]:
            (geo,) = await data.read(["geo:points"])
            return nearest(cast("list[Json]", (geo or {}).get("points", [])), (latitude, longitude))

        async def rates(hotels: list[str], first: str, last: str) -> list[str]:
            plans = await data.read([f"rate:{hotel}" for hotel in hotels])
            priced = [(rate_of(one, first, last), hotel) for hotel, one in zip(hotels, plans, strict=True)]
            return [hotel for rate, hotel in sorted((rate, hotel) for rate, hotel in priced if rate is not None)]

        async def profiles(hotels: list[str]) -> list[JsonObject | None]:
            return await data.read([f"profile:{hotel}" for hotel in hotels])

        async def best(by: str, latitude: float, longitude: float) -> list[str]:
            (known,) = await data.read(["recommendation:all"])
            return recommended(cast("list[Json]", (known or {}).get("hotels", [])), by, (latitude, longitude))

        @app.step
        async def check_password(user: str, password: str) -> bool:
            (known,) = await data.read([f"user:{user}"])
            return known is not None and known["password"] == password

        @app.step
        async def look_around(latitude: float, longitude: float, first: str, last: str) -> list[JsonObject | None]:
            hotels = await near(latitude, longitude)
            priced = await rates(hotels, first, last) if hotels else []
            return await profiles(priced) if priced else []

        @app.step
        async def pick(by: str, latitude: float, longitude: float) -> list[JsonObject | None]:
            return await profiles(await best(by, latitude, longitude))

        @app.workflow
        async def search(latitude: float, longitude: float, first: str, last: str) -> Json:
            return cast(Json, await look_around(latitude, longitude, first, last))

        @app.workflow
        async def recommend(by: str, latitude: float, longitude: float) -> Json:
            return cast(Json, await pick(by, latitude, longitude))

        @app.workflow
        async def login(user: str, password: str) -> Json:
            return await check_password(user, password)

        @app.workflow
        async def order(id: str, user: str) -> None:
            await data.transact(write_order, id, user)

        @app.workflow
        async def reserve(user: str, hotel: int, flight: int) -> Json:
            trip = await data.transact(book_trip, bokiflow.workflow_id(), user, hotel, flight)
            await order(trip, user)
            return trip

        self.operations: Final[Mapping[str, bokiflow.Workflow[..., Json]]] = {
            "search": search,
            "recommend": recommend,
            "login": login,
            "reserve": reserve,
        }
