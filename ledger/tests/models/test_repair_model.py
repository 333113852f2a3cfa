"""A model of one closed ledger: repairers, each bookie's garbage collection, metadata with lost and late answers; every order.

One entry lies on two bookies, 0 and 1; bookie 0 is dead. Three repairers want to give a slot to a target, and each may stop at any
step. A compare-and-swap succeeds, conflicts, succeeds without an answer, or arrives late. A bookie may drop its copy after
it read the metadata. Invariant: each living bookie that the metadata names holds the entry.

| rule | a repairer, before it copies | a bookie drops its copy if a reading does not name it, and |
|---|---|---|
| HOLD | gives the target a hold of the version that it read, for good | the reading is of a version above every hold that it has then |
| NO_HOLD | does nothing | - |
| LOCK | takes the lock of the ledger, which goes with its session | it has the lock |
| RELEASED | gives a hold, and takes it back when it gives up on an unknown outcome | as HOLD |
| REAPPLIED | as HOLD; a conflict makes it apply its change to what is there then | as HOLD |
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import Any, Final, NamedTuple

import pytest
from tests.models.explore import Explored, explore

DEAD: Final = 0
LIVING: Final = (1, 2, 3)
PLANS: Final = ((0, 2), (0, 3), (1, 2))
"""(member that is replaced, target) of each repairer."""
VERSIONS: Final = 4
WITHOUT_END: Final = 99


class Rule(Enum):
    """See the module."""

    HOLD = auto()
    NO_HOLD = auto()
    LOCK = auto()
    RELEASED = auto()
    REAPPLIED = auto()


class Repairer(NamedTuple):
    """One repairer: where it is, and what it read."""

    at: str = "idle"
    version: int = 0
    members: tuple[int, ...] = ()


class Reading(NamedTuple):
    """What the garbage collection of a bookie read, if it did."""

    version: int
    named: bool


class State(NamedTuple):
    """All of it."""

    version: int = 1
    members: tuple[int, ...] = (0, 1)
    holders: frozenset[int] = frozenset((0, 1))
    holds: tuple[int, ...] = (0, 0, 0, 0)
    lock: str = ""
    repairers: tuple[Repairer, ...] = (Repairer(),) * len(PLANS)
    late: frozenset[tuple[int, tuple[int, ...]]] = frozenset()
    """(version, members) of swaps that are on their way without their sender."""
    readings: tuple[Reading | None, ...] = (None,) * 4


def at(values: tuple, index: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:index], value, *values[index + 1 :])


def replaced(members: tuple[int, ...], plan: tuple[int, int]) -> tuple[int, ...]:
    return tuple(plan[1] if member == plan[0] else member for member in members)


def steps_of_repairer(state: State, rule: Rule, number: int) -> Iterator[tuple[str, State]]:
    one, plan = state.repairers[number], PLANS[number]
    old, target = plan
    name = f"repairer {number}"

    def now(where: str, read: int = 0, listed: tuple[int, ...] = (), **changes: Any) -> State:
        return state._replace(repairers=at(state.repairers, number, Repairer(where, read, listed)), **changes)

    released = "" if state.lock == name else state.lock
    fits = old in state.members and target not in state.members
    if one.at == "idle" and fits and state.version < VERSIONS and not (rule is Rule.LOCK and state.lock):
        lock = name if rule is Rule.LOCK else state.lock
        yield f"{name} reads version {state.version}", now("read", state.version, state.members, lock=lock)
    elif one.at == "read":
        hold = {Rule.NO_HOLD: 0, Rule.LOCK: 0, Rule.RELEASED: WITHOUT_END}.get(rule, one.version)
        holds = at(state.holds, target, max(hold, state.holds[target]))
        yield f"{name} holds {target} at {hold}", now("held", one.version, one.members, holds=holds)
    elif one.at == "held" and (target in state.holders or any(holder != DEAD for holder in state.holders)):
        yield f"{name} copies to {target}", now("copied", *one[1:], holders=state.holders | {target})
    elif one.at == "copied":
        wanted = replaced(one.members, plan)
        if state.version == one.version:
            swapped: dict[str, Any] = {"version": state.version + 1, "members": wanted}
            yield f"{name} swaps", now("done", lock=released, **swapped)
            yield f"{name} swaps, the answer is lost", now("unknown", *one[1:], **swapped)
            if rule is not Rule.REAPPLIED:
                yield f"{name} sends a swap", now("unknown", *one[1:], late=state.late | {(one.version, wanted)})
        elif rule is Rule.REAPPLIED and fits:
            swapped = {"version": state.version + 1, "members": replaced(state.members, plan)}
            yield f"{name} applies its change again", now("done", **swapped)
        else:
            yield f"{name} meets a conflict", now("idle", lock=released)
    elif one.at == "unknown" and rule is Rule.RELEASED:
        yield f"{name} gives up and takes its hold back", now("done", holds=at(state.holds, target, 0))
    elif one.at == "unknown" and state.version != one.version:
        yield f"{name} sees another version", now("idle", lock=released)
    elif one.at == "unknown":
        swapped = {"version": state.version + 1, "members": replaced(one.members, plan)}
        yield f"{name} repeats its swap", now("done", lock=released, **swapped)


def steps_of_bookie(state: State, rule: Rule, bookie: int) -> Iterator[tuple[str, State]]:
    reading, name = state.readings[bookie], f"bookie {bookie}"
    if reading is None:
        if bookie in state.holders and not (rule is Rule.LOCK and state.lock):
            lock = name if rule is Rule.LOCK else state.lock
            read = Reading(state.version, bookie in state.members)
            yield (
                f"{name} reads version {state.version}",
                state._replace(readings=at(state.readings, bookie, read), lock=lock),
            )
        return
    rest = state._replace(readings=at(state.readings, bookie, None), lock="" if state.lock == name else state.lock)
    holds = rule not in (Rule.NO_HOLD, Rule.LOCK)
    if reading.named or (holds and reading.version <= state.holds[bookie]):
        yield f"{name} keeps its copy", rest
    else:
        yield f"{name} drops its copy", rest._replace(holders=state.holders - {bookie})


def steps(state: State, rule: Rule) -> Iterator[tuple[str, State]]:
    for number in range(len(PLANS)):
        yield from steps_of_repairer(state, rule, number)
    for version, members in sorted(state.late):
        left = state.late - {(version, members)}
        if version == state.version:
            yield "a late swap lands", state._replace(version=version + 1, members=members, late=left)
        yield "a late swap is lost", state._replace(late=left)
    if rule is Rule.LOCK and state.lock:
        yield "the session of the lock ends", state._replace(lock="")
    for bookie in LIVING:
        yield from steps_of_bookie(state, rule, bookie)


def explored(rule: Rule) -> Explored:
    return explore(
        State(),
        lambda state: steps(state, rule),
        lambda state: any(member != DEAD and member not in state.holders for member in state.members),
    )


def test_no_named_copy_is_lost_where_targets_hold_what_they_were_given() -> None:
    found = explored(Rule.HOLD)
    print(f"{found.states} states explored")  # noqa: T201 - how much of the model was looked at
    assert (found.states > 10_000, found.way) == (True, [])


@pytest.mark.parametrize("rule", [rule for rule in Rule if rule is not Rule.HOLD], ids=lambda rule: rule.name)
def test_each_weaker_rule_loses_a_copy(rule: Rule) -> None:
    found = explored(rule)
    print(*found.way, sep="\n")  # noqa: T201 - the way to the loss
    assert found.way
