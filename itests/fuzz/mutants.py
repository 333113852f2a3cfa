"""Damaged copies of valid bytes, drawn by a seed. Pure.

What is changed: bits, bytes, numbers of 1 to 8 bytes (to those where programs go wrong), the length, the order of pieces; and pieces
come from other samples. Most mutants have one change, since what is damaged in many places is refused at the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, Literal

MOST_BYTES: Final = 16_384
_NUMBERS: Final = (
    0,
    1,
    2,
    7,
    8,
    127,
    128,
    255,
    256,
    4_095,
    4_096,
    65_535,
    65_536,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
_WIDTHS: Final = (1, 2, 4, 8)
_ONE_CHANGE: Final = 0.75


def mutant(numbers: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """A damaged copy of `data`; pieces may come from `others`."""
    changed = bytearray(data)
    while True:
        numbers.choice(_CHANGES)(numbers, changed, others)
        if numbers.random() < _ONE_CHANGE:
            return bytes(changed[:MOST_BYTES])


def _bit(numbers: Random, data: bytearray, others: Sequence[bytes]) -> None:
    if data:
        data[numbers.randrange(len(data))] ^= 1 << numbers.randrange(8)


def _byte(numbers: Random, data: bytearray, others: Sequence[bytes]) -> None:
    if data:
        data[numbers.randrange(len(data))] = numbers.randrange(256)


def _number(numbers: Random, data: bytearray, others: Sequence[bytes]) -> None:
    width = numbers.choice(_WIDTHS)
    if len(data) >= width:
        at = numbers.randrange(len(data) - width + 1)
        value = numbers.choice(_NUMBERS) % 256**width
        data[at : at + width] = value.to_bytes(width, numbers.choice(("little", "big")))


def _nearby(numbers: Random, data: bytearray, others: Sequence[bytes]) -> None:
    """A count that is off by a little."""
    width = numbers.choice(_WIDTHS)
    if len(data) >= width:
        at = numbers.randrange(len(data) - width + 1)
        order: Literal["little", "big"] = numbers.choice(("little", "big"))
        value = int.from_bytes(data[at : at + width], order)
        value = (value + numbers.choice((-8, -1, 1, 8))) % 256**width
        data[at : at + width] = value.to_bytes(width, order)


def _cut(numbers: Random, data: bytearray, others: Sequence[bytes]) -> None:
    del data[numbers.randrange(len(data) + 1) :]


def _drop(numbers: Random, data: bytearray, others: Sequence[bytes]) -> None:
    at = numbers.randrange(len(data) + 1)
    del data[at : at + numbers.randrange(1, 17)]


def _repeat(numbers: Random, data: bytearray, others: Sequence[bytes]) -> None:
    at = numbers.randrange(len(data) + 1)
    data[at:at] = data[at : at + numbers.randrange(1, 65)] * numbers.randrange(1, 9)


def _insert(numbers: Random, data: bytearray, others: Sequence[bytes]) -> None:
    at = numbers.randrange(len(data) + 1)
    data[at:at] = numbers.randbytes(numbers.randrange(1, 17))


def _splice(numbers: Random, data: bytearray, others: Sequence[bytes]) -> None:
    other = numbers.choice(others) if others else b""
    at, begin = numbers.randrange(len(data) + 1), numbers.randrange(len(other) + 1)
    data[at:] = other[begin:]


_CHANGES: Final[tuple[Callable[[Random, bytearray, Sequence[bytes]], None], ...]] = (
    _bit, _byte, _number, _number, _nearby, _nearby, _cut, _drop, _repeat, _insert, _splice,
)  # fmt: skip
