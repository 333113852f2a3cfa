"""What adds may take from a disk: user data stop above the reserve, control entries above its floor."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from boki_bookie.settings import BookieSettings
from boki_bookie.space.disk_room import DiskRoom, reserve_floor

SETTINGS = BookieSettings(read_only_below_bytes=1_000, writable_above_bytes=2_000, control_reserve_bytes=400)


def room(free_bytes: int, *, unstored_bytes: int = 0, reserve: bool = True) -> DiskRoom:
    made = DiskRoom()
    made.measured(free_bytes, SETTINGS, unstored_bytes=unstored_bytes, reserve=reserve)
    return made


def test_control_entries_leave_what_the_settings_say_and_at_least_half() -> None:
    assert reserve_floor(SETTINGS) == 600
    assert reserve_floor(dataclasses.replace(SETTINGS, control_reserve_bytes=10_000)) == 500
    assert reserve_floor(dataclasses.replace(SETTINGS, control_reserve_bytes=0)) == 1_000
    assert reserve_floor(BookieSettings()) * 2 == BookieSettings().read_only_below_bytes


def test_before_the_first_look_user_data_are_taken_and_there_is_no_reserve() -> None:
    made = DiskRoom()
    assert made.take_data(1 << 40)
    assert not made.look_due
    assert not made.take_control(1)


def test_user_data_stop_above_the_reserve_and_control_entries_at_its_floor() -> None:
    made = room(1_200)
    assert made.take_data(100)
    assert not made.take_data(1)
    assert made.look_due
    assert made.take_control(300)
    assert not made.take_control(1)


def test_entries_that_no_checkpoint_has_stored_count() -> None:
    assert not room(1_200, unstored_bytes=200).take_data(1)
    assert not room(1_000, unstored_bytes=400).take_control(1)


def test_a_bookie_that_an_administrator_keeps_read_only_has_no_reserve() -> None:
    assert not room(1 << 30, reserve=False).take_control(1)


def test_a_look_is_due_when_half_of_the_room_is_used() -> None:
    made = room(1_400)
    assert made.take_data(100)
    assert not made.look_due
    assert made.take_data(1)
    assert made.look_due


@given(st.integers(0, 5_000), st.integers(0, 5_000), st.lists(st.tuples(st.booleans(), st.integers(0, 900))))
def test_whatever_comes_user_data_leave_the_reserve_and_control_entries_its_floor(
    free_bytes: int, unstored_bytes: int, adds: list[tuple[bool, int]]
) -> None:
    made, data, control = room(free_bytes, unstored_bytes=unstored_bytes), 0, 0
    for is_control, size in adds:
        if is_control and made.take_control(size):
            control += 2 * size
        elif not is_control and made.take_data(size):
            data += 2 * size
    left = free_bytes - unstored_bytes
    assert data == 0 or left - data >= SETTINGS.read_only_below_bytes
    assert control == 0 or left - control >= reserve_floor(SETTINGS)
