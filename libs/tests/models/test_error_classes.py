"""A model of classes of errors over deployments of a program: a recorded error is rebuilt as the class that it had, or as none.

A program is a few modules with a few names, which lead to classes. A class keeps its identity when it moves to another module or gets
another name; the names of its importers still lead to it, and do not show its name there.

Two things cannot be distinguished by names, so no step of the model does them: a name is not given to another class where it led to the
recorded one; and the function does not move to where another class has that name, while the class leaves its module.
"""

from __future__ import annotations

import itertools
import sys
import types
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias

import pytest

from bokiflow.errors import StepFailed
from bokiflow.model.outcomes import NOWHERE, error_of, failed, missing_class

MODULES: Final = ("of_errors_a", "of_errors_b", "of_errors_c")
NAMES: Final = ("Declined", "Timeout")
CLASSES: Final = (0, 1, 2)
ROUNDS: Final = 300
Slot: TypeAlias = tuple[str, str]
"""A name in a module."""


class Program(NamedTuple):
    """A program.

    Attributes:
        homes: where each class is defined. imports: the class that each other name leads to. function, workflow: the modules of both.
        says: the module and name that a class says it has, if `type(...)` made it; else they are its home.
    """

    homes: dict[int, Slot]
    imports: dict[Slot, int]
    function: str
    workflow: str
    says: dict[int, Slot]

    @property
    def names(self) -> dict[Slot, int]:
        """The class that each name leads to."""
        return self.imports | {home: one for one, home in self.homes.items()}


SLOTS: Final = tuple(itertools.product(MODULES, NAMES))
KINDS: Final = ("move", "move along", "delete", "import", "forget", "function", "workflow")


def drawn(random: Random) -> Program:
    homes: dict[int, Slot] = dict(zip(CLASSES, random.sample(SLOTS, len(CLASSES)), strict=True))
    free = [slot for slot in SLOTS if slot not in homes.values()]
    imports: dict[Slot, int] = {
        slot: random.choice(CLASSES) for slot in random.sample(free, random.randint(0, len(free)))
    }
    says: dict[int, Slot] = {one: random.choice(SLOTS) for one in CLASSES if random.random() < 0.2}
    return Program(homes, imports, random.choice(MODULES), random.choice(MODULES), says)


def told(program: Program, one: int) -> Slot:
    """Return the module and name of a class, as a record has them."""
    return program.says.get(one, program.homes[one])


def changed(now: Program, random: Random, one: int, led: set[Slot]) -> Program:
    """Return the program after one change, or as it is. `one`: the class that was recorded. `led`: the names that led to it then."""
    homes, imports, names = dict(now.homes), dict(now.imports), now.names
    kind, slot, some = random.choice(KINDS), random.choice(SLOTS), random.choice(CLASSES)
    fits = slot not in names and some in homes and (some == one or slot not in led)
    if kind == "move" and fits:
        homes[some] = slot
    elif kind == "move along" and one in homes:
        old, new = homes[one][0], (slot[0], homes[one][1])
        if new not in names:
            homes[one] = new
            now = now._replace(
                function=new[0] if now.function == old else now.function,
                workflow=new[0] if now.workflow == old else now.workflow,
            )
    elif kind == "import" and fits:
        imports[slot] = some
    elif kind == "delete":
        homes.pop(some, None)
        imports = {at: found for at, found in imports.items() if found != some}
    elif kind == "forget":
        imports.pop(slot, None)
    elif kind == "function":
        return now._replace(function=slot[0])
    elif kind == "workflow":
        return now._replace(workflow=slot[0])
    return now._replace(homes=homes, imports=imports)


def is_told_apart(was: Program, now: Program, one: int) -> bool:
    """Return False if a function or workflow moved to where another class has the name of the recorded one, which left its module."""
    home, names = told(was, one), now.names
    moved = [at for at, before in ((now.function, was.function), (now.workflow, was.workflow)) if at != before]
    return names.get(home) == one or all(names.get((module, home[1]), one) == one for module in moved)


class Running:
    """A program in this process."""

    def __init__(self, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
        made = {module: types.ModuleType(module) for module in MODULES}
        self.classes: dict[int, type[Exception]] = {}
        for one in program.homes:
            module, name = told(program, one)
            self.classes[one] = type(name, (Exception,), {"__module__": module})
        for (module, name), one in program.names.items():
            setattr(made[module], name, self.classes[one])
        self.places: tuple[dict[str, Any], ...] = (vars(made[program.function]), vars(made[program.workflow]))
        for module, imported in made.items():
            monkeypatch.setitem(sys.modules, module, imported)


@pytest.mark.parametrize("part", range(4))
def test_an_error_is_rebuilt_as_its_class_or_as_none(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rebuilt = 0
    for seed in range(part * ROUNDS, (part + 1) * ROUNDS):
        random = Random(seed)
        was, one, known = drawn(random), random.choice(CLASSES), random.randint(0, 2)
        before = Running(was, monkeypatch)
        failure = failed(before.classes[one]("no"), *before.places[:known]).error
        assert failure is not None
        nameless = failure.known_by == NOWHERE
        expected = StepFailed if nameless else before.classes[one]
        assert type(error_of(failure, *before.places)) is expected, f"{seed=}: as the step raised it"
        assert not nameless or one in was.says, f"{seed=}: it had its name at home"
        now, led = was, {slot for slot, found in was.names.items() if found == one}
        for _ in range(random.randint(1, 4)):
            now = changed(now, random, one, led)
        if not is_told_apart(was, now, one):
            continue
        after = Running(now, monkeypatch)
        lost = missing_class(failure, *after.places)
        expected = StepFailed if nameless or lost is not None else after.classes[one]
        assert type(error_of(failure, *after.places)) is expected, f"{seed=}: another class of that name"
        stayed = (now.function, now.workflow) == (was.function, was.workflow)
        if stayed and now.names.get(told(was, one)) == one == was.names.get(told(was, one)):
            assert lost is None, f"{seed=}: it is where it was"
        rebuilt += not nameless and lost is None and was.homes[one] != now.homes[one]
    assert rebuilt, "classes that moved are found too"
