"""Values of users for simulated programs: they are stored as they say, and read as they were."""

from __future__ import annotations

from bokilib.records.codec import from_json, stored_json
from bokilib.testing.odd_values import PARCEL, Basket, basket, parcel, parcel_json


def test_a_parcel_and_a_basket_are_read_as_they_were_stored() -> None:
    assert stored_json(PARCEL, parcel("ann")) == parcel_json("ann")
    assert from_json(PARCEL, parcel_json("ann")) == parcel("ann") != parcel("bob")
    assert from_json(Basket, stored_json(Basket, basket("ann"))) == basket("ann") != basket("bob")
