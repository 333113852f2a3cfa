"""What has to be true of trips in the end, whatever was killed meanwhile. Pure: of answers and all rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from bokilib.codec import JsonObject
from examples.apps.application import Answer

HOLDS: Final = (
    "every trip that was acknowledged is booked, once, as it was asked for; of those that were refused there is nothing",
    "no trip is half booked: of each hotel and each flight as many are taken as there are trips of it",
    "every trip has its order, and every order its trip",
    "every login was answered as the password is",
)


def check(answers: Iterable[Answer], rows: Mapping[str, JsonObject]) -> list[str]:
    """What is wrong."""
    kept = list(answers)
    trips = {name.removeprefix("trip:"): row for name, row in rows.items() if name.startswith("trip:")}
    orders = {name.removeprefix("order:"): row for name, row in rows.items() if name.startswith("order:")}
    faults = [*_answered(kept, trips), *always(rows)]
    faults += [f"trip {id} has no order" for id in sorted(trips.keys() - orders.keys())]
    return faults + [f"order {id} has no trip" for id in sorted(orders.keys() - trips.keys())]


def always(rows: Mapping[str, JsonObject]) -> list[str]:
    """What is wrong with a snapshot, whatever is under way."""
    faults = []
    trips = [row for name, row in rows.items() if name.startswith("trip:")]
    for kind in ("hotel", "flight"):
        taken = Counter(f"{kind}:{trip[kind]}" for trip in trips)
        for name, row in rows.items():
            if name.startswith(f"{kind}:"):
                gone = int(str(row["capacity"])) - int(str(row["left"]))
                if gone != taken[name] or int(str(row["left"])) < 0:
                    faults.append(
                        f"{gone} are taken of {name}, and {taken[name]} trips have it: {row['left']} are left"
                    )
    return faults


def _answered(answers: list[Answer], trips: Mapping[str, JsonObject]) -> list[str]:
    faults = []
    asked = {}
    for answer in answers:
        request = answer.request
        if request.operation == "login" and answer.value is not True:
            faults.append(f"{request.args[0]} could not log in with the right password")
        if request.operation != "reserve":
            if answer.refused:
                faults.append(f"{request.operation} {request.id} was refused: {answer.refused}")
            continue
        asked[request.id] = answer
        user, hotel, flight = request.args
        trip = trips.get(request.id)
        if answer.refused == "SoldOut":
            if trip is not None:
                faults.append(f"trip {request.id} was refused, and is booked")
        elif answer.refused:
            faults.append(f"trip {request.id} was refused: {answer.refused}")
        elif trip is None:
            faults.append(f"trip {request.id} was acknowledged, and is not booked")
        elif trip != {"user": user, "hotel": hotel, "flight": flight}:
            faults.append(f"trip {request.id} is not what was asked for: {trip}")
    return faults + [f"nobody asked for trip {id}" for id in sorted(trips.keys() - asked.keys())]
