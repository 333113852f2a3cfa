"""A model of one closed ledger, this bookie's garbage collection (the real rules) and one repair, all interleavings.

The ledger lies on A and B; this bookie, X, holds a copy that the metadata does not name (it was a member once, and was
replaced while it was away). A is lost. The repair is as Apache's: under the lock of the ledger it reads the metadata, copies
what X lacks to X (what X holds, X acknowledges), and swaps the metadata so that X takes A's place. Its lock goes with its
session; the process goes on, and ZooKeeper's client makes a new session. A copy is lost where the metadata names X and X
holds nothing: B has the only one of two. A repair of ours has X note the version that it read (a hold) before it copies; the
model of that with all repairers and lost answers is in `ledger/tests/models`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from boki_bookie.space.gc_rules import Proof, Verdict, decide, judge
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.ids import BookieId

X: Final = "x"


class State(NamedTuple):
    """All of it."""

    named: bool = False
    """Whether the metadata has X in A's place."""
    version: int = 1
    holds: bool = True
    repeats: int = 0
    lock: str = ""
    """Who has it."""
    repair: str = "idle"
    """idle, begun, read, copied, done."""
    listed: int = 0
    """The version that the repair read."""
    proof: Proof | None = None
    """The first one of the collection."""
    hold: int = -1


def reading(state: State) -> Proof:
    """One read of the metadata by the collection, and what the ledger is here meanwhile."""
    members = (X, "b") if state.named else ("a", "b")
    metadata = LedgerMetadata(
        ensemble_size=2,
        write_quorum=2,
        ack_quorum=2,
        ensembles=((0, tuple(BookieId(name) for name in members)),),
        state=LedgerState.CLOSED,
        last_entry=0,
    )
    return Proof(judge(metadata, X), 0.0, 0, state.version, int(state.holds), state.repeats, state.hold)


def steps_of_repair(state: State, *, gives_holds: bool) -> Iterator[tuple[str, State]]:
    if state.repair == "idle" and not state.lock:
        yield "repair takes the lock", state._replace(lock="repair", repair="begun")
    if state.repair == "begun":
        yield "repair reads the list", state._replace(repair="read", listed=state.version)
    if state.repair == "read" and gives_holds and state.hold < state.listed:
        yield "X holds what repair read", state._replace(hold=state.listed)
    elif state.repair == "read":
        copied = state._replace(repair="copied", holds=True, repeats=state.repeats + state.holds)
        yield "repair copies to X", copied
    if state.repair == "copied" and state.version == state.listed:
        yield "repair swaps A for X", state._replace(repair="done", named=True, version=state.version + 1)
    if state.lock == "repair":
        yield "the lock of repair goes", state._replace(lock="")


def steps_of_collection(state: State, may_empty: bool) -> Iterator[tuple[str, State]]:
    if not state.holds:
        return
    now = reading(state)
    verdict = decide(state.proof, now, grace_s=0.0, may_empty=may_empty)
    if verdict is Verdict.BEGIN:
        yield "collection reads", state._replace(proof=now)
    elif verdict is Verdict.KEEP:
        yield "collection keeps it", state._replace(proof=None)
    elif verdict is Verdict.EMPTY and not state.lock:  # both under the lock
        yield "collection reads again and empties", state._replace(proof=None, holds=False)


def explored(*, may_empty: bool, gives_holds: bool = False) -> tuple[int, list[str]]:
    """How many states there are, and the shortest way to a lost copy; none is []."""
    ways: dict[State, list[str]] = {State(): []}
    waiting = deque(ways)
    while waiting:
        state = waiting.popleft()
        if state.named and not state.holds:
            return len(ways), ways[state]
        for what, following in (
            *steps_of_repair(state, gives_holds=gives_holds),
            *steps_of_collection(state, may_empty),
        ):
            if following not in ways:
                ways[following] = [*ways[state], what]
                waiting.append(following)
    return len(ways), []


def test_where_emptying_is_allowed_a_repair_with_an_old_list_costs_a_copy() -> None:
    states, way = explored(may_empty=True)
    print(f"{states} states explored")  # noqa: T201 - how much of the model was looked at
    assert len(way) == 7
    assert sorted(way) == sorted(
        [
            "repair takes the lock",
            "repair reads the list",
            "repair copies to X",
            "the lock of repair goes",
            "collection reads",
            "collection reads again and empties",
            "repair swaps A for X",
        ]
    )


def test_no_copy_is_lost_where_emptying_is_not_allowed_as_by_default() -> None:
    states, way = explored(may_empty=False)
    print(f"{states} states explored")  # noqa: T201 - how much of the model was looked at
    assert (states > 5, way) == (True, [])


def test_no_copy_is_lost_where_emptying_is_allowed_and_each_repair_gives_holds() -> None:
    states, way = explored(may_empty=True, gives_holds=True)
    print(f"{states} states explored")  # noqa: T201 - how much of the model was looked at
    assert (states > 20, way) == (True, [])
