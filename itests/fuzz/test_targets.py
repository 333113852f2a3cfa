"""Every decoder of bytes from outside takes its samples, and raises nothing but our own errors for damaged ones."""

from __future__ import annotations

from random import Random

import pytest

from itests.fuzz.mutants import mutant
from itests.fuzz.targets import TARGETS, Target, feed, seeds

MUTANTS = 150


@pytest.mark.parametrize("target", TARGETS, ids=lambda one: one.name.replace(" ", "-"))
def test_samples_are_taken_and_damaged_ones_refused_by_name(target: Target) -> None:
    assert target.samples
    assert [sample for sample in target.samples if not feed(target, sample)] == []
    numbers = Random(f"{target.name}")
    others = [sample for _, sample in seeds()]
    for _ in range(MUTANTS):
        feed(target, mutant(numbers, numbers.choice(target.samples), others))
    for empty in (b"", b"\0", bytes(64), b"\xff" * 64):
        feed(target, empty)
