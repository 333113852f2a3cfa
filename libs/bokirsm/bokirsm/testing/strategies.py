"""Strategies: they decide which machine handles next, what a random choice is, and where a machine crashes. Pure, but for their seed.

| strategy | it picks | fair |
|---|---|---|
| `Uniform` | any machine that has something to handle | yes |
| `Sticky(3)` | the machine that ran last, with chance 1 - 1/2^3; else any (Coyote: probabilistic) | yes |
| `Priorities(10)` | the machine of the highest priority; at up to 10 steps the one that runs gets the lowest (PCT) | later |
| `Delays(10)` | machines in turn, each until it has nothing to handle; at up to 10 steps the next one (delay bounding) | later |
| `Exhaustive` | each schedule once (DFS) | no |
| `Scripted` | what a witness says | no |

A fair strategy lets each machine that waits run sooner or later, so a promise that is never kept is a fault of the program. `Priorities`
and `Delays` choose as `Uniform` does after `FAIR_AFTER` steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from bokirsm.testing.errors import Diverged

FAIR_AFTER: Final = 10_000
"""Steps after which a strategy that is not fair chooses as `Uniform` does."""
ONE_IN: Final = 8
"""One of so many handlers runs again as a check, and one of so many machines with volatile state crashes before a handler."""
LENGTHS: Final = (16, 32, 64, 128, 256, 512, 1_024, 2_048)
"""Steps among which a run places its changes and delays: one of these, since the length of a run is not known before."""

Kind: TypeAlias = Literal["run", "pick", "crash"]


class Decision(NamedTuple):
    """A decision of a run.

    Attributes:
        kind: run: the machine, timer or client of the next step; pick: a random choice; crash: volatile state is lost before a handler.
        value: the key of the machine, timer or client; the number that was picked, or 1 for a crash.
    """

    kind: Kind
    value: str | int


class Strategy:
    """A strategy. It decides one run after the other.

    Attributes:
        name: of the strategy.
        fair_from: the step from which it is fair; None if it never is.
        complete: it has decided all runs that there are.
    """

    name = ""
    fair_from: int | None = 0
    complete = False

    def begin(self, seed: int) -> None:
        """Begin a run."""
        self._rng = random.Random(seed)

    def next(self, keys: Sequence[str], step: int) -> int:
        """Return the index of the key that runs next."""
        return self._below(len(keys))

    def pick(self, bound: int) -> int:
        """Return a number below a bound."""
        return self._below(bound) if bound < 1 << 32 else self._rng.getrandbits(bound.bit_length() + 32) % bound

    def crash(self) -> bool:
        """Return whether a machine loses its volatile state before its next handler."""
        return self._below(ONE_IN) == 0

    def check(self) -> bool:
        """Return whether a handler runs again, as a check that changes nothing."""
        return self._below(ONE_IN) == 0

    def _below(self, bound: int) -> int:
        return int(self._rng.random() * bound)


class Uniform(Strategy):
    """Any machine, each with the same chance."""

    name = "random"


class Sticky(Strategy):
    """The machine that ran last, most times."""

    def __init__(self, bits: int = 3) -> None:
        """Change to any machine with chance 1/2^bits."""
        self.name = f"probabilistic({bits})"
        self._one_in: Final = 1 << bits
        self._last = ""

    def begin(self, seed: int) -> None:
        """Begin with any machine."""
        super().begin(seed)
        self._last = ""

    def next(self, keys: Sequence[str], step: int) -> int:
        """Return the last one, or any."""
        if self._last not in keys or self._below(self._one_in) == 0:
            self._last = keys[self._below(len(keys))]
        return keys.index(self._last)


class Priorities(Strategy):
    """The machine of the highest priority (PCT: Burckhardt et al., ASPLOS 2010)."""

    fair_from = FAIR_AFTER

    def __init__(self, changes: int = 10) -> None:
        """Lower the priority of the running machine at up to `changes` steps."""
        self.name = f"pct({changes})"
        self._changes: Final = changes
        self._at = frozenset[int]()
        self._order: list[str] = []

    def begin(self, seed: int) -> None:
        """Choose the steps at which priorities change."""
        super().begin(seed)
        within = LENGTHS[self._below(len(LENGTHS))]
        self._at = frozenset(self._below(within) for _ in range(self._below(self._changes + 1)))
        self._order = []

    def next(self, keys: Sequence[str], step: int) -> int:
        """Return the one with the highest priority. One that is new gets a random priority."""
        if step >= FAIR_AFTER:
            return self._below(len(keys))
        known = set(self._order)
        for key in keys:
            if key not in known:
                self._order.insert(self._below(len(self._order) + 1), key)
        waiting = set(keys)
        chosen = next(key for key in self._order if key in waiting)
        if step in self._at:
            self._order.remove(chosen)
            self._order.append(chosen)
            chosen = next(key for key in self._order if key in waiting)
        return keys.index(chosen)


class Delays(Strategy):
    """Machines in turn, with delays (delay bounding: Emmi et al., POPL 2011)."""

    fair_from = FAIR_AFTER

    def __init__(self, delays: int = 10) -> None:
        """Pass over the machine whose turn it is at up to `delays` steps."""
        self.name = f"delay({delays})"
        self._delays: Final = delays
        self._at = frozenset[int]()
        self._turns: dict[str, int] = {}
        self._last = 0

    def begin(self, seed: int) -> None:
        """Choose the steps with delays."""
        super().begin(seed)
        within = LENGTHS[self._below(len(LENGTHS))]
        self._at = frozenset(self._below(within) for _ in range(self._below(self._delays + 1)))
        self._turns, self._last = {}, 0

    def next(self, keys: Sequence[str], step: int) -> int:
        """Return the one that ran last, or the next in turn if that has nothing to handle or is delayed."""
        if step >= FAIR_AFTER:
            return self._below(len(keys))
        turns = self._turns
        for key in keys:
            turns.setdefault(key, len(turns))
        first = self._last + (step in self._at)
        chosen = min(range(len(keys)), key=lambda at: (turns[keys[at]] < first, turns[keys[at]]))
        self._last = turns[keys[chosen]]
        return chosen


class Exhaustive(Strategy):
    """Each run once, depth first."""

    name = "dfs"
    fair_from = None

    def __init__(self) -> None:
        self._path: list[list[int]] = []
        """The index and the number of options of each decision of the present run."""
        self._depth = 0
        self._began = False

    def begin(self, seed: int) -> None:
        """Turn to the next run. The caller has looked at `complete`."""
        self._began, self._depth = True, 0

    def ended(self) -> None:
        """Note the end of a run: the deepest decision that has another option takes it."""
        del self._path[self._depth :]
        while self._path and self._path[-1][0] + 1 == self._path[-1][1]:
            self._path.pop()
        if self._path:
            self._path[-1][0] += 1
        else:
            self.complete = True

    def next(self, keys: Sequence[str], step: int) -> int:
        """Return each index once."""
        return self.pick(len(keys))

    def pick(self, bound: int) -> int:
        """Return each number once."""
        if bound == 1:
            return 0
        if self._depth == len(self._path):
            self._path.append([0, bound])
        index, options = self._path[self._depth]
        if options != bound:
            raise Diverged(f"expected {options} options at decision {self._depth + 1}, as before, found {bound}")
        self._depth += 1
        return index

    def crash(self) -> bool:
        """Return False, then True."""
        return self.pick(2) == 1

    def check(self) -> bool:
        """Return True: runs are few."""
        return True


class Scripted(Strategy):
    """The decisions of a witness.

    With `strict` they have to fit the run. Else a step whose machine has nothing to handle is left out, with the choices in it. After the
    end of the script the machine that ran last continues, or the first one runs; numbers are 0, and nothing crashes.
    """

    name = "replay"
    fair_from = None

    def __init__(
        self, decisions: Sequence[Decision], *, strict: bool, checks: bool, fair_from: int | None = None
    ) -> None:
        """Take the decisions. `checks`: each handler runs again as a check. `fair_from`: as of the strategy that made them."""
        self._decisions: Final = decisions
        self._strict: Final = strict
        self._checks: Final = checks
        self._at = 0
        self._last = ""
        self.fair_from = fair_from

    def begin(self, seed: int) -> None:
        """Begin with the first decision."""
        self._at, self._last = 0, ""

    def next(self, keys: Sequence[str], step: int) -> int:
        """Return the index of the key that the script names."""
        if self._strict:
            found = self._take("run")
            if found not in keys:
                raise Diverged(f"expected {found} to run in step {step + 1}, as before, found {', '.join(keys)}")
            return keys.index(str(found))
        while self._at < len(self._decisions):
            kind, value = self._decisions[self._at]
            self._at += 1
            if kind == "run" and value in keys:
                self._last = str(value)
                return keys.index(self._last)
        self._last = self._last if self._last in keys else keys[0]
        return keys.index(self._last)

    def pick(self, bound: int) -> int:
        """Return the number that the script names."""
        found = self._take("pick")
        if isinstance(found, int) and 0 <= found < bound:
            return found
        if self._strict:
            raise Diverged(f"expected a number below {bound} as decision {self._at}, found {found!r}")
        return 0

    def crash(self) -> bool:
        """Return what the script says."""
        return self._take("crash") == 1

    def check(self) -> bool:
        """Return True if the witness is about a check."""
        return self._checks

    def _take(self, kind: Kind) -> str | int | None:
        """Return the value of the next decision if it is of a kind; else None, and it stays the next one, unless it is a crash."""
        while (
            not self._strict
            and kind == "pick"
            and self._decisions[self._at : self._at + 1]
            and self._decisions[self._at].kind == "crash"
        ):
            self._at += 1  # there is nothing to lose any more
        if self._at < len(self._decisions) and self._decisions[self._at].kind == kind:
            self._at += 1
            return self._decisions[self._at - 1].value
        if self._strict:
            raise Diverged(
                f"expected decision {self._at + 1} of the witness to be of kind {kind!r}, as before, found another"
            )
        return None


def portfolio() -> list[Strategy]:
    """Return the strategies that a test uses by default, in turn."""
    return [Uniform(), Sticky(3), Priorities(10), Delays(10)]


def strategies_of(name: str) -> list[Strategy]:
    """Return the strategies of a name; "" for the portfolio.

    Raises:
        KeyError: there is no such strategy.
    """
    if not name:
        return portfolio()
    return [STRATEGIES[name]()]


STRATEGIES: Final[dict[str, Callable[[], Strategy]]] = {
    "random": Uniform,
    "probabilistic": Sticky,
    "pct": Priorities,
    "delay": Delays,
    "dfs": Exhaustive,
}
