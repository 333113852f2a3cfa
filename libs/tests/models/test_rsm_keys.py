"""A model of a machine's key over the library's own rules (`machine_state`, `partition_state`): programs create the machine at any time, it
handles its creation and halts, its owner makes snapshots and checkpoints, and a carrier lets the tomb go, so that the key is free again.

After each step an owner that loads has to find the machine as the log says: the life of the newest creation that succeeded. A second
creation must not succeed while the machine lives, nor within the retention of its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from bokirsm.model.events import Commit
from bokirsm.model.machine_state import MachineState
from bokirsm.model.partition_state import machine_of
from libs.tests.models.search import search


@dataclass(frozen=True)
class Rules:
    """Each broken variant turns one off."""

    create_expects_none: bool = True
    tomb_for_key: bool = True
    """A machine with a key that halted has a snapshot, though nothing of its state is left."""
    after_retention: bool = True
    after_commits: bool = True
    """A tomb goes once the partition has no commit of the machine above what its checkpoint covers."""


@dataclass(frozen=True)
class Key:
    """The log: a life is (number, "created" | "alive" | "halted"); commits of p by place."""

    rules: Rules
    creations: int = 2
    forgotten: bool = True
    """Whether the log knows no record of the machine's stream."""
    life: int = 0
    standing: str = ""
    commits: tuple[tuple[int, int, bool], ...] = ()
    """(place, k, halted) of the commits in p."""
    place: int = 0
    covers: int = 0
    snapshot: tuple[int, bool] | None = None
    """(k, halted) of the newest snapshot in the machine's stream."""
    retained: bool = False
    """Whether the end of the machine is within its retention."""
    broken: str = ""

    def fault(self) -> str | None:
        return self.broken or self._misread()

    def _misread(self) -> str | None:
        """Return what an owner that loads the machine now finds wrong."""
        snapshot = MachineState("M", self.snapshot[0], halted=self.snapshot[1]) if self.snapshot else None
        commits = [
            Commit("g/0/m", k, kind="M" if k == 1 else "", halted=halted)
            for place, k, halted in self.commits
            if place > self.covers
        ]
        try:
            found = machine_of(snapshot, commits)
        except LookupError:
            return "a commit is missing"
        standing = "" if found is None else "halted" if found.halted else "alive"
        if self.standing in ("alive", "halted") and standing not in (
            self.standing,
            "" if self.standing == "halted" else "?",
        ):
            return f"{standing or 'no machine'} is found, and it is {self.standing}"
        return f"an ended life is found as {standing}" if self.standing == "created" and standing else None

    def moves(self) -> Iterator[tuple[str, Key]]:
        rules = self.rules
        if self.creations:
            free = self.forgotten or not rules.create_expects_none
            if free:
                wrong = "a second machine has the key" if self.standing == "alive" or self.retained else ""
                yield (
                    "a program creates the machine",
                    replace(
                        self,
                        creations=self.creations - 1,
                        forgotten=False,
                        life=self.life + 1,
                        standing="created",
                        broken=wrong,
                    ),
                )
        place = self.place + 1
        if self.standing == "created":
            made = (*self.commits, (place, 1, False))
            yield "its creation is handled", replace(self, standing="alive", commits=made, place=place)
        if self.standing == "alive":
            made = (*self.commits, (place, 2, True))
            yield "it halts", replace(self, standing="halted", commits=made, place=place, retained=True)
        k = {"alive": 1, "halted": 2}.get(self.standing, 0)
        if k and self.snapshot != (k, k == 2) and (k == 1 or rules.tomb_for_key):
            yield "a snapshot", replace(self, snapshot=(k, k == 2), forgotten=False)
        if self.covers < self.place and (self.snapshot == (k, k == 2) or (k == 2 and not rules.tomb_for_key)):
            yield "a checkpoint", replace(self, covers=self.place)
            if self.place > 1:
                yield "a checkpoint that covers less", replace(self, covers=max(self.covers, self.place - 1))
        if self.covers and k == 2 and not rules.tomb_for_key and self.snapshot is None:
            yield "the stream is trimmed and forgotten", replace(self, forgotten=True)
        if self.retained:
            yield "the retention passes", replace(self, retained=False)
        gone = not any(place > self.covers for place, _, _ in self.commits) or not rules.after_commits
        if self.snapshot == (2, True) and gone and (not self.retained or not rules.after_retention):
            yield "the tomb goes", replace(self, snapshot=None, forgotten=True)


def test_a_key_is_one_machine_until_it_is_free_again() -> None:
    found = search(Key(Rules()))
    assert (found.fault, found.path) == (None, [])
    assert found.states > 20


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ("create_expects_none", "second machine"),
        ("tomb_for_key", "second machine|a commit is missing"),
        ("after_retention", "second machine"),
        ("after_commits", "a commit is missing|an ended life"),
    ],
)
def test_without_a_rule_the_search_finds_what_goes_wrong(rule: str, fault: str) -> None:
    found = search(Key(replace(Rules(), **{rule: False})))
    assert found.fault is not None and any(one in found.fault for one in fault.split("|")), found
