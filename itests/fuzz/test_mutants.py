"""Damaged copies: the same by the same seed, bounded, and mostly damaged."""

from __future__ import annotations

from random import Random

from itests.fuzz.mutants import MOST_BYTES, mutant

SAMPLE = bytes(range(200))


def test_the_same_seed_damages_alike() -> None:
    one, other = Random(5), Random(5)
    assert [mutant(one, SAMPLE, [b"x" * 99]) for _ in range(200)] == [
        mutant(other, SAMPLE, [b"x" * 99]) for _ in range(200)
    ]


def test_nearly_all_are_damaged_and_none_is_large() -> None:
    numbers = Random(7)
    made = [mutant(numbers, data, [b"", SAMPLE]) for data in (SAMPLE, bytes(MOST_BYTES), b"x") for _ in range(500)]
    assert max(map(len, made)) <= MOST_BYTES
    assert sum(one not in (SAMPLE, bytes(MOST_BYTES), b"x") for one in made) > 1_200
