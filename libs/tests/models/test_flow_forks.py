"""Forks in several records as a model, read back by the library's own fold: two processes begin forks of one id, either may
pause without limit, a collector forgets forks that never began. There is a whole fork or none; with a rule turned off there is half of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from bokiflow.model import history_fold
from bokiflow.model.delivery_order import RecordedEvents
from bokiflow.model.flow_events import Checkpointed, Started, Stepped
from bokiflow.model.history_fold import History, HistoryRecord
from bokiflow.model.outcomes import Outcome
from libs.tests.models.search import search

STARTED = Started("y", "n", "d", [[], {}], 0)


def _data(who: str) -> list[bytes]:
    """Events of a fork's parts: the last part is empty, as in the record that starts the fork."""
    made = RecordedEvents(1, 0, 0, (Stepped("y", who, "s", "", 0, Outcome()),))
    data = b"".join(history_fold.split_data(History(STARTED, 0, None, [made], 0, 0)))
    return [data[: len(data) // 2], data[len(data) // 2 :], b""]


DATA = {who: _data(who) for who in "ab"}


@dataclass(frozen=True)
class Rules:
    """Each broken variant turns one off.

    Attributes:
        last: the record that starts a fork is its last; else its first.
        chained: each part expects that nothing was written since the one before; else only the last one does.
        expected: the last part expects it; else none does.
    """

    last: bool = True
    chained: bool = True
    expected: bool = True


@dataclass(frozen=True)
class World:
    """`log`: (seqnum, who, part), 3 for a start's. `todo`: for each process, the parts that are left, and the place of the last one."""

    rules: Rules
    log: tuple[tuple[int, str, int], ...] = ()
    todo: tuple[tuple[str, tuple[int, ...], int], ...] = ()
    end: int = 0
    floor: int = 0
    collects: int = 1
    crashes: int = 1

    def fault(self) -> str | None:
        if not any(self._starts(part) for _, _, part in self.log):
            return None
        history = history_fold.fold([self._kept(*one) for one in self.log], self.floor)
        if history is None:
            return "half a fork"
        keys = [getattr(event, "key", "") for one in history.records for event in one.own]
        return None if len(keys) == 1 else f"a fork with {keys}"

    def _starts(self, part: int) -> bool:
        return part == (2 if self.rules.last else 0)

    def _kept(self, seqnum: int, who: str, part: int) -> HistoryRecord:
        started = STARTED if self._starts(part) else None
        event = Checkpointed("y", 9, part, 3, DATA[who][part])
        return HistoryRecord(RecordedEvents(seqnum, 0, 0, started=started), "by", None, (event,))

    def moves(self) -> Iterator[tuple[str, World]]:
        begun = any(self._starts(part) for _, _, part in self.log)
        for at, (who, parts, last) in enumerate(self.todo):
            others = (*self.todo[:at], *self.todo[at + 1 :])
            if self.crashes:
                yield f"{who} dies", replace(self, todo=others, crashes=self.crashes - 1)
            part, *later = parts
            chained = self.rules.chained if part == 1 else self.rules.expected and part == 2
            if (self._starts(part) and begun) or (chained and not self._holds(last)):
                yield f"{who} is refused", replace(self, todo=others)
                continue
            after = (*others, (who, tuple(later), self.end + 1)) if later else others
            wrote = (*self.log, (self.end + 1, who, part))
            yield f"{who} writes {part}", replace(self, log=wrote, todo=after, end=self.end + 1)
        if self.collects and not begun and self.log:
            yield "it is forgotten", replace(self, log=(), floor=self.end, collects=self.collects - 1)

    def _holds(self, last: int) -> bool:
        """Return whether nothing was written to the history since. The log cannot tell about a forgotten stream."""
        return bool(self.log) and self.log[-1][0] == last


def begin(rules: Rules) -> World:
    return World(rules, todo=tuple((who, (0, 1, 2), 0) for who in "ab"))


def test_there_is_a_whole_fork_or_none_whoever_dies_or_is_away() -> None:
    found = search(begin(Rules()))
    assert (found.fault, found.path) == (None, [])
    assert found.states > 100


@pytest.mark.parametrize("rule", ["last", "chained", "expected"])
def test_without_a_rule_there_is_half_a_fork(rule: str) -> None:
    found = search(begin(replace(Rules(), **{rule: False})))
    assert found.fault is not None and found.path
