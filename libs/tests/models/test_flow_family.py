"""A model of a transaction with a part in another workflow: rivals that change the objects that the part reads, takeovers, zombies, a part
that is cancelled. All of it takes effect once, at one moment, unless a rule is turned off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from libs.tests.models.search import search

TEN = 10


@dataclass(frozen=True)
class Rules:
    """Each broken variant turns one off.

    Attributes:
        staged: a part writes nothing itself; else it commits its own writes. placed: a part reads as of its transaction; else as of now.
        expected: the record expects the reads of the part; else only those of the root. own: each attempt has parts of its own; else
        the part is found again by its call. fenced: the record expects the claim of the root's executor.
    """

    staged: bool = True
    placed: bool = True
    expected: bool = True
    own: bool = True
    fenced: bool = True


@dataclass(frozen=True)
class Root:
    """An executor of the root, by its claim. `part`: number of its attempt's; `got`: what that returned (y as it saw it)."""

    claim: int
    place: int = -1
    part: int = -1
    got: int = -1


@dataclass(frozen=True)
class World:
    """`store`: (y, w) after each record; a place is an index. The transaction is to set w = y + 10, and a part reads y.
    `parts`: place of its transaction, and y as it saw it: -1 not yet, -2 it was cancelled."""

    rules: Rules
    rivals: int = 2
    takeovers: int = 1
    cancels: int = 1
    attempts: int = 4
    claim: int = 0
    store: tuple[tuple[int, int], ...] = ((0, 0),)
    roots: tuple[Root, ...] = (Root(0),)
    parts: tuple[tuple[int, int], ...] = ()
    outcomes: tuple[str, ...] = ()
    wrong: str = ""

    def fault(self) -> str | None:
        if self.wrong:
            return self.wrong
        if len(self.outcomes) > 1:
            return f"it ended as {self.outcomes}"
        if (self.store[-1][1] != 0) != (self.outcomes == ("done",)):
            return f"its outcome is {self.outcomes}, the store has {self.store[-1]}"
        if not self.outcomes and self.attempts and not any(True for _ in self.moves()):
            return "it never ends"
        return None

    def moves(self) -> Iterator[tuple[str, World]]:
        y, w = self.store[-1]
        if self.rivals:
            yield "a rival", replace(self, rivals=self.rivals - 1, store=(*self.store, (y + 1, w)))
        if self.takeovers and not self.outcomes:
            taken = (*self.roots, Root(self.claim + 1))
            yield "a takeover", replace(self, takeovers=self.takeovers - 1, claim=self.claim + 1, roots=taken)
        for number, (place, seen) in enumerate(self.parts):
            if seen == -1:
                yield f"part {number} runs", self._part(number, place)
                if self.cancels:
                    ended = (*self.parts[:number], (place, -2), *self.parts[number + 1 :])
                    yield f"part {number} is cancelled", replace(self, cancels=self.cancels - 1, parts=ended)
        for root in self.roots:
            yield from self._root(root)

    def _part(self, number: int, place: int) -> World:
        seen = self.store[place if self.rules.placed else -1][0]
        store = self.store if self.rules.staged else (*self.store, (self.store[-1][0], seen + TEN))
        return replace(self, store=store, parts=(*self.parts[:number], (place, seen), *self.parts[number + 1 :]))

    def _root(self, root: Root) -> Iterator[tuple[str, World]]:
        name = f"root {root.claim}"
        if root.place < 0:
            if self.attempts:
                placed = replace(root, place=len(self.store) - 1)
                yield f"{name} begins", replace(self._with(root, placed), attempts=self.attempts - 1)
        elif root.part < 0:
            if root.claim != self.claim:
                yield f"{name} parks", self._with(root, None)
            elif not self.rules.own and self.parts:
                yield f"{name} finds its part", self._with(root, replace(root, part=0))
            else:
                called = replace(root, part=len(self.parts))
                yield f"{name} calls", replace(self._with(root, called), parts=(*self.parts, (root.place, -1)))
        elif root.got < 0:
            seen = self.parts[root.part][1]
            if seen == -2:
                yield f"{name} fails", self._ended(root, "cancelled", self.store)
            elif seen >= 0:
                wrong = "" if seen == self.store[root.place][0] else "a part read elsewhere than its transaction"
                yield f"{name} is answered", replace(self._with(root, replace(root, got=seen)), wrong=wrong)
        else:
            yield from self._commit(name, root)

    def _commit(self, name: str, root: Root) -> Iterator[tuple[str, World]]:
        y, _ = self.store[-1]
        if self.rules.fenced and root.claim != self.claim:
            yield f"{name} parks", self._with(root, None)
        elif self.rules.expected and y != self.store[root.place][0]:
            yield f"{name} loses", self._with(root, Root(root.claim))
        else:
            wrong = "" if root.got == y else "what a part read had changed"
            yield (
                f"{name} commits",
                replace(self._ended(root, "done", (*self.store, (y, root.got + TEN))), wrong=wrong),
            )

    def _ended(self, root: Root, how: str, store: tuple[tuple[int, int], ...]) -> World:
        if self.rules.fenced and root.claim != self.claim:
            return self._with(root, None)
        return replace(self._with(root, None), store=store, outcomes=(*self.outcomes, how))

    def _with(self, root: Root, after: Root | None) -> World:
        others = tuple(one for one in self.roots if one is not root)
        return replace(self, roots=others if after is None else (*others, after))


def test_a_transaction_with_a_part_elsewhere_happens_once_as_if_at_one_moment() -> None:
    found = search(World(Rules()))
    assert (found.fault, found.path) == (None, [])
    assert found.states > 1_000


@pytest.mark.parametrize("rule", ["staged", "placed", "expected", "own", "fenced"])
def test_without_a_rule_it_does_not(rule: str) -> None:
    found = search(World(replace(Rules(), **{rule: False})))
    assert found.fault is not None and found.path
