"""Values as users have them, for simulated programs: models with aliases that are strict, dataclasses in one another.

`parcel` makes a model of pydantic if it is installed, else a class of msgspec that is stored as the same JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

try:
    import pydantic
except ImportError:
    PARCEL: Any = msgspec.defstruct(
        "Parcel", [("to_whom", str), ("lines", list[list[str]]), ("coupon", str | None, None)]
    )
    _NAMES: Mapping[str, str] = {"to_whom": "to_whom", "coupon": "coupon"}
else:
    PARCEL = pydantic.create_model(
        "Parcel",
        __config__=pydantic.ConfigDict(strict=True),
        to_whom=(str, pydantic.Field(alias="toWhom")),
        lines=(list[list[str]], ...),
        coupon=(str | None, pydantic.Field(None, alias="couponCode")),
    )
    _NAMES = {"to_whom": "toWhom", "coupon": "couponCode"}

COUPON: Final = "SAVE10"


def parcel(to_whom: str) -> Any:
    """Return a model with values in all of its fields."""
    return PARCEL(**{_NAMES["to_whom"]: to_whom, _NAMES["coupon"]: COUPON}, lines=[["apple"], [to_whom]])


def parcel_json(to_whom: str) -> dict[str, Any]:
    """Return the JSON as which `parcel` is stored."""
    return {"to_whom": to_whom, "lines": [["apple"], [to_whom]], "coupon": COUPON}


@dataclass
class Line:
    """A line of a basket."""

    name: str
    notes: list[str] = field(default_factory=list)


@dataclass
class Basket:
    """A dataclass with lists of others, and lists in a dict."""

    lines: list[Line]
    labels: dict[str, list[str]]


def basket(of: str) -> Basket:
    """Return a basket with something in each list."""
    return Basket([Line("apple", [of])], {"of": [of]})
