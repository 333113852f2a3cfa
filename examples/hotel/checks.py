"""The promises of the travel reservation, checked against all rows and the answers that clients got. Pure.

    faults = check(answers, rows)         # sentences; [] if every promise holds

`always` holds in every snapshot, also while requests are in progress. `check` holds once every request has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from bokilib.records.codec import JsonObject
from examples.apps.application import Answer

HOLDS: Final = (
    "every acknowledged trip is booked once, as requested; refused trips left nothing behind",
    "no trip is half booked: each hotel and each flight is booked as often as there are trips with it",
    "every trip has an order, and every order has a trip",
    "every login with the right password succeeded",
)


def check(answers: Iterable[Answer], rows: Mapping[str, JsonObject]) -> list[str]:
    """Return the faults in the rows after all requests ended."""
    kept = list(answers)
    trips = {name.removeprefix("trip:"): row for name, row in rows.items() if name.startswith("trip:")}
    orders = {name.removeprefix("order:"): row for name, row in rows.items() if name.startswith("order:")}
    faults = [*_answered(kept, trips), *always(rows)]
    faults += [f"trip {id} has no order" for id in sorted(trips.keys() - orders.keys())]
    return faults + [f"order {id} has no trip" for id in sorted(orders.keys() - trips.keys())]


def always(rows: Mapping[str, JsonObject]) -> list[str]:
    """Return the faults that a snapshot has even while requests are in progress."""
    faults = []
    trips = [row for name, row in rows.items() if name.startswith("trip:")]
    for kind in ("hotel", "flight"):
        taken = Counter(f"{kind}:{trip[kind]}" for trip in trips)
        for name, row in rows.items():
            if name.startswith(f"{kind}:"):
                gone = int(str(row["capacity"])) - int(str(row["left"]))
                if gone != taken[name] or int(str(row["left"])) < 0:
                    faults.append(f"{name}: {gone} booked, but {taken[name]} trips have it; {row['left']} left")
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
                faults.append(f"trip {request.id} was refused, but is booked")
        elif answer.refused:
            faults.append(f"trip {request.id} was refused: {answer.refused}")
        elif trip is None:
            faults.append(f"trip {request.id} was acknowledged, but is not booked")
        elif trip != {"user": user, "hotel": hotel, "flight": flight}:
            faults.append(f"trip {request.id} differs from the request: {trip}")
    return faults + [f"trip {id} was never requested" for id in sorted(trips.keys() - asked.keys())]
