"""Ids of session writers say when they were made."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boki_common.runtime.process import SystemRandom
from boki_common.writer_ids import BIRTHS, BORN, WRITER_BYTES, birth_of, born_writer


@given(st.integers(0, BIRTHS - 1))
def test_the_birth_of_a_writer_is_in_its_id(birth: int) -> None:
    writer = born_writer(SystemRandom(), birth)
    assert (len(writer), birth_of(writer)) == (WRITER_BYTES, birth)


def test_bytes_are_as_the_table_says() -> None:
    assert birth_of(bytes.fromhex("010203040506070a00000001626f726e")) == 0x01_00_00_00_0A
    assert BORN == b"born"


def test_two_writers_of_one_second_are_two() -> None:
    assert len({born_writer(SystemRandom(), 7) for _ in range(1_000)}) == 1_000


def test_ids_of_earlier_versions_and_births_that_nothing_could_follow_are_none() -> None:
    assert birth_of(bytes(16)) is None
    assert birth_of(bytes(range(16))) is None
    assert birth_of(bytes(7) + BIRTHS.to_bytes(5, "little") + BORN) is None
    assert birth_of(b"\xff" * 12 + BORN) is None
