"""Which log orders which slot: spreading slots by weight with the least movement, and moving chosen ones.

Two forms of one thing, and both ways between them:

    per slot    (0, 0, 1, …)               the log of each of the 1,024 slots; for deciding
    ranges      ((0, 511, 0), …)           first, last (inclusive), log; ascending, no gaps; for the view and for people

Rules:
- `spread` gives each log its share of the slots by weight, rounded down or up, and moves as few slots as any such spread
  can. A slot whose log has no weight (0, or not named) moves; else a log gives up its highest slots, and logs that lack
  some take them in ascending order. Equal arguments give equal results.
- Nothing here knows terms: a spread is a wish, and `term_change` makes it so.

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from boki_common import limits
from boki_common.errors import InvalidArgument

WEIGHT_MAX: Final = 1_000_000


class SlotsOfLog(NamedTuple):
    """Slots `first` to `last`, both included, of one log."""

    first: int
    last: int
    log: int


def per_slot(ranges: Iterable[tuple[int, int, int]]) -> tuple[int, ...]:
    """The log of each slot. The ranges must cover every slot once, in order: a view's do."""
    logs: list[int] = []
    for first, last, log in ranges:
        assert first == len(logs), "ranges ascend and have no gaps"
        logs += [log] * (last + 1 - first)
    assert len(logs) == limits.SLOTS, "ranges cover every slot"
    return tuple(logs)


def to_ranges(logs: Sequence[int]) -> tuple[SlotsOfLog, ...]:
    """The fewest ranges that say the same: equal assignments have equal ranges."""
    assert len(logs) == limits.SLOTS, "every slot has a log"
    ranges: list[SlotsOfLog] = []
    first = 0
    for slot in range(1, limits.SLOTS + 1):
        if slot == limits.SLOTS or logs[slot] != logs[first]:
            ranges.append(SlotsOfLog(first, slot - 1, logs[first]))
            first = slot
    return tuple(ranges)


def moved(logs: Sequence[int], slots: Iterable[int], to: int) -> tuple[int, ...]:
    """The assignment after these slots went to one log. Raises InvalidArgument for what is no slot."""
    after = list(logs)
    for slot in slots:
        if not 0 <= slot < limits.SLOTS:
            raise InvalidArgument(f"expected slots from 0 to {limits.SLOTS - 1}, found {slot}", found=slot)
        after[slot] = to
    return tuple(after)


def concerned(before: Sequence[int], after: Sequence[int]) -> tuple[int, ...]:
    """The logs that give or take a slot between two assignments, ascending: those that need a new term."""
    return tuple(sorted({log for old, new in zip(before, after, strict=True) if old != new for log in (old, new)}))


def _total(weights: Mapping[int, int]) -> int:
    for log, weight in weights.items():
        if not 0 <= weight <= WEIGHT_MAX:
            raise InvalidArgument(
                f"expected weights from 0 to {WEIGHT_MAX}, found {weight} for log {log}", found=weight
            )
    total = sum(weights.values())
    if total == 0:
        raise InvalidArgument("expected a log with a weight above 0, found none: slots must belong to some log")
    return total


def shares(logs: Sequence[int], weights: Mapping[int, int]) -> dict[int, int]:
    """How many slots each log is due: its share rounded down or up, so that the fewest of `logs` have to move. Raises
    InvalidArgument: no log has a weight, or a weight is negative or absurdly large."""
    total = _total(weights)
    held = Counter(logs)
    exact = {log: Fraction(limits.SLOTS * weight, total) for log, weight in sorted(weights.items())}
    due = {log: int(share) for log, share in exact.items()}
    # Rounding up where more is held than the rounded-down share saves one move each; then the largest remainders.
    up = sorted(
        (log for log, share in exact.items() if share != int(share)),
        key=lambda log: (held[log] <= due[log], due[log] - exact[log], log),
    )
    for log in up[: limits.SLOTS - sum(due.values())]:
        due[log] += 1
    return due


def spread(logs: Sequence[int], weights: Mapping[int, int]) -> tuple[int, ...]:
    """The assignment in which each log has its share, with the fewest slots moved. Raises InvalidArgument as `shares`."""
    due = shares(logs, weights)
    after = list(logs)
    homeless: list[int] = []
    kept: Counter[int] = Counter()
    for slot, log in enumerate(logs):
        if kept[log] < due.get(log, 0):
            kept[log] += 1
        else:
            homeless.append(slot)
    takers = (log for log in sorted(due) for _ in range(due[log] - kept[log]))
    for slot, log in zip(homeless, takers, strict=True):
        after[slot] = log
    return tuple(after)


def parse_slots(text: str) -> tuple[int, ...]:
    """Slots as people write them, `0-99,512`. Raises InvalidArgument."""
    slots: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isdecimal() and (last.isdecimal() if dash else True)):
            raise InvalidArgument(f"expected slots such as 0-99,512, found {part!r} in {text!r}", found=text)
        low, high = int(first), int(last) if dash else int(first)
        if not low <= high < limits.SLOTS:
            raise InvalidArgument(f"expected slots from 0 to {limits.SLOTS - 1}, found {part.strip()!r}", found=text)
        slots.update(dict.fromkeys(range(low, high + 1)))
    return tuple(slots)


def parse_weights(text: str) -> dict[int, int]:
    """Weights as people write them, `0=1,1=2`. Raises InvalidArgument."""
    weights: dict[int, int] = {}
    for part in text.split(","):
        log, equals, weight = part.strip().partition("=")
        if not (equals and log.isdecimal() and weight.isdecimal()) or int(log) in weights:
            raise InvalidArgument(f"expected a weight for each log such as 0=1,1=2, found {part!r}", found=text)
        weights[int(log)] = int(weight)
    return weights


def slots_text(ranges: Iterable[tuple[int, int]]) -> str:
    """Ranges of slots for people: `0-99,512`, or `none`."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges) or "none"
