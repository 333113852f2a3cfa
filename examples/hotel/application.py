"""The travel reservation, as the service, the load and the trial know it."""

from __future__ import annotations

from functools import partial
from typing import Final

from examples.apps.application import Application
from examples.hotel import data_set
from examples.hotel.app import Hotel
from examples.hotel.checks import HOLDS, always, check
from examples.hotel.mix import MIX, TRIAL_MIX, request

TRIAL_CAPACITY: Final = 25
"""So that some is sold out in a trial, and most is not."""
TABLES: Final = ("geo", "rate", "profile", "recommendation", "user", "hotel", "flight", "trip", "order")

HOTEL: Final = Application(
    "hotel", Hotel, partial(data_set.rows, TRIAL_CAPACITY), request, MIX, TRIAL_MIX, check, always, HOLDS, TABLES
)
