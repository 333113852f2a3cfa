"""Finds the smallest fault script that still fails: delta debugging (Zeller and Hildebrandt, 2002).

    smallest = shrink(outcome.script, lambda script: fails(run_seed(seed, script=script)))

First each host of a user is left out, with all that it meets, or its faults alone; then whole groups of faults, then smaller
groups, then single ones; then what lasts is made shorter. The result is minimal in that leaving out any one fault more makes the
run pass, unless `tries` ran out before.

Pure but for what the caller's `fails` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from boki_sim.faults.faults import Fault
from boki_sim.faults.host_faults import ABSENT, host_of

TRIES: Final = 200
SHORTEST_S: Final = 0.05

Fails = Callable[[list[Fault]], bool]


def shrink(script: Sequence[Fault], fails: Fails, *, tries: int = TRIES, hosts: Sequence[str] = ()) -> list[Fault]:
    """The smallest failing part of a failing script.

    Args:
        fails: whether a script still shows the failure; called at most `tries` times.
        hosts: of users, each of which may not be needed.
    """
    budget = _Budget(fails, tries)
    nothing = budget.fails([])
    absent, rest = _without_hosts([] if nothing else list(script), hosts, budget)
    here = _Budget(lambda part: fails([*absent, *part]), budget.left)
    return [*absent, *_shorten(rest if nothing else _leave_out(rest, here), here)]


def _without_hosts(script: list[Fault], hosts: Sequence[str], budget: _Budget) -> tuple[list[Fault], list[Fault]]:
    """Leaves out whole hosts, or all faults of one: what says which are left out, and the rest."""
    absent: list[Fault] = []
    for name in hosts:
        spared = [fault for fault in script if host_of(fault) != name]
        without = Fault(0.0, ABSENT, name)
        if budget.fails([*absent, without, *spared]):
            absent.append(without)
            script = spared
        elif len(spared) < len(script) and budget.fails([*absent, *spared]):
            script = spared
    return absent, script


class _Budget:
    """Counts the tries; with none left, nothing fails any more and what there is stays."""

    def __init__(self, fails: Fails, tries: int) -> None:
        self._fails = fails
        self.left = tries

    def fails(self, script: list[Fault]) -> bool:
        if self.left <= 0:
            return False
        self.left -= 1
        return self._fails(script)


def _leave_out(script: list[Fault], budget: _Budget) -> list[Fault]:
    groups = 2
    while len(script) > 1:
        size = max(1, len(script) // groups)
        for start in range(0, len(script), size):
            rest = script[:start] + script[start + size :]
            if rest and budget.fails(rest):
                script = rest
                groups = max(2, groups - 1)
                break
        else:
            if size == 1 or budget.left <= 0:
                break
            groups = min(len(script), 2 * groups)
    return script


def _shorten(script: list[Fault], budget: _Budget) -> list[Fault]:
    for at, fault in enumerate(script):
        while fault.seconds > SHORTEST_S:
            shorter = replace(fault, seconds=round(fault.seconds / 2, 3))
            if not budget.fails([*script[:at], shorter, *script[at + 1 :]]):
                break
            script[at] = fault = shorter
    return script
