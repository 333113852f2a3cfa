"""What a simulated client is like: which calls it makes how often, and its time-outs. Drawn by the seed. Pure."""

from __future__ import annotations

import random  # noqa: TID251 - the type; the generators come from the seed
from dataclasses import dataclass
from typing import Final

from boki_sim.checkers.history import Consistency
from boki_sim.work.operations import ANY, AT, AUX, BOOKS, LINEARIZABLE, NEXT, PREV, SEEK, SESSION, TAIL, TRIM

GIVE_UP_S: Final = 60.0
ONE: Final = "append"
BURST: Final = "burst"
MANY: Final = "many"
TICKET: Final = "ticket"
NUMBERED: Final = "numbered"
LOCK: Final = "lock"
SCAN: Final = "scan"
WAIT: Final = "wait"
CALL: Final = "call"
ACTIVITIES: Final = (ONE, BURST, MANY, NEXT, PREV, TAIL, SCAN, WAIT, NUMBERED)
LATER_ACTIVITIES: Final = (TICKET, LOCK, AT, SEEK, AUX, CALL)
"""Drawn behind all others, so that a seed's other draws are what they were."""


@dataclass(slots=True)
class CallMix:
    """One client's mix.

    Attributes:
        weights: activity → how often.
        conditional: share of appends that expect something.
        timeout_s: time-out of an append: short ones leave the outcome unknown.
        consistencies: one of these is drawn for each read.
        give_up_s: what `connect` is given: calls end so long after their engine was lost.
        forget: share of trims that also forget.
    """

    tasks: int
    pause_s: float
    weights: dict[str, float]
    payload_bytes: int
    books: tuple[str, ...]
    burst: int
    conditional: float
    timeout_s: float
    consistencies: tuple[Consistency, ...]
    give_up_s: float = GIVE_UP_S
    forget: float = 0.0


def draw_call_mix(numbers: random.Random, *, crowded: bool = False) -> CallMix:
    """A client's mix; in a crowd it appends and reads one record at a time, in several tasks."""
    weights = {kind: numbers.choice((0.0, 1.0, 3.0)) for kind in ACTIVITIES}
    weights[ONE] = weights[ONE] or 1.0
    weights[TRIM] = numbers.choice((0.0, 0.3, 1.0))
    drawn = CallMix(
        tasks=numbers.choice((1, 2, 4)),
        pause_s=numbers.choice((0.005, 0.02, 0.1)),
        weights=weights,
        payload_bytes=numbers.choice((8, 100, 300)),
        books=tuple(numbers.sample(BOOKS, numbers.randrange(1, len(BOOKS) + 1))),
        burst=numbers.choice((3, 20, 100)),
        conditional=numbers.choice((0.0, 0.2, 0.8)),
        timeout_s=numbers.choice((0.3, 3.0, GIVE_UP_S)),
        consistencies=numbers.choice(((SESSION,), (SESSION, LINEARIZABLE), (SESSION, LINEARIZABLE, LINEARIZABLE, ANY))),
    )
    for kind in LATER_ACTIVITIES:
        weights[kind] = numbers.choice((0.0, 0.0, 1.0, 2.0))
    drawn.give_up_s = numbers.choice((GIVE_UP_S, GIVE_UP_S, 2.0))
    drawn.forget = numbers.choice((0.0, 0.5, 1.0))
    if crowded:
        drawn.weights = {**weights, BURST: 0.0, MANY: 0.0, ONE: 3.0, TAIL: 3.0, NEXT: 2.0}
        drawn.tasks, drawn.pause_s = 4, 0.05
    return drawn
