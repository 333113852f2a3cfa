"""A model of a letter on its way back, over the queue's own rule for its receivers (`Receivers`): two redrives decide and append at
any time, while groups of the queue register and are dropped. In every schedule the letter goes to the group that gave it up, once, or is
left. If a rule is turned off, the search finds an execution in which another group gets it, or none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from bokiqueue.model.events import Config, Limits
from bokiqueue.queue import Receivers
from libs.tests.models.search import search

OWN = "audit"


@dataclass(frozen=True)
class Rules:
    """Each broken variant turns one off."""

    expects_the_settings: bool = True
    expects_the_letter: bool = True
    asks_for_its_group: bool = True


@dataclass(frozen=True)
class Decision:
    """What a redrive read and decided, and has not appended yet. `group`: the only group that gets the letter, "" for all."""

    settings: int
    moved: int
    group: str


@dataclass(frozen=True)
class Letter:
    """The log: by which record the settings were changed last, and which groups got the letter when it was moved."""

    rules: Rules
    changes: int
    groups: frozenset[str] = frozenset({"default", OWN})
    settings: int = 1
    moved: tuple[frozenset[str], ...] = ()
    deciding: tuple[Decision | None, ...] = (None, None)

    def fault(self) -> str | None:
        if len(self.moved) > 1:
            return "moved twice"
        return next((f"delivered to {sorted(got)}" for got in self.moved if got != {OWN}), None)

    def moves(self) -> Iterator[tuple[str, Letter]]:
        if self.changes:
            for group in ("default", OWN, "late"):
                after = replace(
                    self, changes=self.changes - 1, settings=self.settings + 1, groups=self.groups ^ {group}
                )
                yield f"{'drop' if group in self.groups else 'register'} {group}", after
        for number, decision in enumerate(self.deciding):
            if decision is None:
                yield from self._decides(number)
            else:
                yield from self._appends(number, decision)

    def _with(self, number: int, decision: Decision | None) -> tuple[Decision | None, ...]:
        return (*self.deciding[:number], decision, *self.deciding[number + 1 :])

    def _decides(self, number: int) -> Iterator[tuple[str, Letter]]:
        groups = dict.fromkeys(sorted(self.groups), 1)
        config = Config("jobs", "consume", 1, 1, "dead", 0, Limits(), groups)
        group = Receivers().of(config, OWN) if self.rules.asks_for_its_group else ""
        if group is not None and (not self.moved or not self.rules.expects_the_letter):
            decision = Decision(self.settings, len(self.moved), group)
            yield f"redrive {number} decides", replace(self, deciding=self._with(number, decision))

    def _appends(self, number: int, decision: Decision) -> Iterator[tuple[str, Letter]]:
        after = replace(self, deciding=self._with(number, None))
        lost = (self.rules.expects_the_settings and decision.settings != self.settings) or (
            self.rules.expects_the_letter and decision.moved != len(self.moved)
        )
        if lost:
            yield f"the record of redrive {number} loses", after
            return
        got = self.groups & {decision.group} if decision.group else self.groups
        yield f"redrive {number} moves it", replace(after, moved=(*self.moved, got))


def test_a_letter_goes_to_its_group_once_whatever_happens_to_the_groups() -> None:
    found = search(Letter(Rules(), changes=4))
    assert found.fault is None, found
    assert found.states > 100


@pytest.mark.parametrize(
    ("rules", "fault"),
    [
        (Rules(expects_the_settings=False), "delivered to"),
        (Rules(expects_the_letter=False), "moved twice"),
        (Rules(asks_for_its_group=False), "delivered to"),
    ],
)
def test_without_a_rule_the_search_finds_what_goes_wrong(rules: Rules, fault: str) -> None:
    found = search(Letter(rules, changes=4))
    assert found.fault is not None and found.fault.startswith(fault), found
