"""A model of the rules of offloading: two offloaders, kills, stalls, trims, losses, the reclaimer, a reader and one term.

Every interleaving is explored. With all rules no fault occurs; without any one of them a fault occurs, which shows what it prevents:

| rule | without it |
|---|---|
| each attempt has names of its own | a stalled offloader overwrites files that another one has named |
| the swap compares the version | an overtaken offloader replaces the names of the winner's files |
| the reader shows files ∩ plan | records that died since are shown |
| dead positions are listed | records that died before are taken for damage |
| a copied term that dies is reclaimed | ledgers and files are never deleted |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import pytest

ALL: Final = frozenset((1, 2))
Rows = frozenset[int]


@dataclass(frozen=True)
class Rules:
    """The rules that hold in a run of the model."""

    names: bool = True
    compare: bool = True
    plan: bool = True
    dead: bool = True
    reclaim: bool = True


@dataclass(frozen=True)
class File:
    """The rows of a slice, or for a manifest the rows of its slice and those that were dead then (None: not listed)."""

    name: str
    rows: Rows
    dead: Rows | None = None
    slice: str = ""


@dataclass(frozen=True)
class Worker:
    """An offloader: its step, the version it read, and the live rows of its snapshot."""

    step: str = "idle"
    version: int = 0
    live: Rows = frozenset()


@dataclass(frozen=True)
class World:
    live: Rows = ALL
    snapshot: Rows = ALL
    kind: str = "ledgers"
    version: int = 0
    manifest: str = ""
    files: frozenset[File] = frozenset()
    ledgers: bool = True
    workers: tuple[Worker, Worker] = (Worker(), Worker())
    reader: tuple[Rows, str, str] | None = None
    """A reader: the rows that it planned, and the location and manifest of the term that it found later."""

    def file(self, name: str) -> File | None:
        return next((one for one in self.files if one.name == name), None)

    def whole(self, name: str) -> bool:
        """Return whether a manifest and its slice exist and fit."""
        manifest = self.file(name)
        found = None if manifest is None else self.file(manifest.slice)
        return manifest is not None and found is not None and found.rows == manifest.rows


def put(world: World, file: File) -> World:
    return replace(world, files=frozenset(one for one in world.files if one.name != file.name) | {file})


def without(world: World, *names: str) -> World:
    return replace(world, files=frozenset(one for one in world.files if one.name not in names))


def with_worker(world: World, number: int, worker: Worker) -> World:
    workers = (worker, world.workers[1]) if not number else (world.workers[0], worker)
    return replace(world, workers=workers)


def names(number: int, rules: Rules) -> tuple[str, str]:
    name = f"s{number}" if rules.names else "s"
    return name, f"m-{name}"


def offloading(world: World, number: int, rules: Rules) -> Iterator[World]:
    """Yield the next step of an offloader, and its death at any step."""
    worker = world.workers[number]
    name, manifest = names(number, rules)

    def at(step: str, base: World = world) -> World:
        return with_worker(base, number, replace(worker, step=step))

    if worker.step == "idle" and world.kind == "ledgers" and world.snapshot:
        yield with_worker(world, number, Worker("slice", world.version, world.snapshot))
    elif worker.step == "slice":
        yield at("manifest", put(world, File(name, worker.live))) if world.ledgers else at("gone")
    elif worker.step == "manifest":
        yield at("proof", put(world, File(manifest, worker.live, ALL - worker.live if rules.dead else None, name)))
    elif worker.step == "proof":
        found, written = world.file(manifest), world.file(name)
        proved = found is not None and written is not None and found.rows == written.rows == worker.live
        yield at("swap" if proved else "undo")
    elif worker.step == "swap":
        may = world.version == worker.version if rules.compare else world.kind in ("ledgers", "copied")
        if may:
            yield at("done", replace(world, kind="copied", version=world.version + 1, manifest=manifest))
        else:
            yield at("undo")
    elif worker.step == "undo":
        yield at("gone", without(world, name, manifest))
    if worker.step in ("slice", "manifest", "proof", "swap"):
        yield at("gone")


def sweeping(world: World, rules: Rules) -> Iterator[World]:
    """Yield the deletion of an attempt's files that no record can ever name."""
    for number in (0, 1) if rules.names else ():  # offloaders that share names may delete nothing
        name, manifest = names(number, rules)
        over = world.workers[number].step == "gone" and world.manifest != manifest
        version = world.workers[number].version
        if over and (world.version > version) and (world.file(name) or world.file(manifest)):
            yield without(world, name, manifest)


def reclaiming(world: World, rules: Rules) -> Iterator[World]:
    dead = not world.live and not world.snapshot
    if dead and (world.kind == "ledgers" or (rules.reclaim and world.kind == "copied")):
        yield replace(world, kind="reclaimed", version=world.version + 1)
    if world.kind == "reclaimed" and (world.ledgers or world.manifest):
        gone = without(world, world.manifest, world.manifest.removeprefix("m-")) if world.manifest else world
        yield replace(gone, ledgers=False, manifest="")


def read_rows(world: World, rules: Rules) -> Rows | str:
    """Return what a read of the plan gives now: rows, "stale" or "damaged"."""
    assert world.reader is not None
    rows, kind, manifest = world.reader
    if kind == "ledgers":
        return rows if world.ledgers else "stale"
    if kind == "reclaimed":
        return "stale" if rows else rows
    found = world.file(manifest)
    if found is None or world.file(found.slice) is None:
        return "stale" if (world.kind, world.manifest) != (kind, manifest) else "damaged"
    if not world.whole(manifest):
        return "damaged"
    if not rules.plan:
        return found.rows
    if rows <= found.rows:
        return rows
    if found.dead is not None and rows - found.rows <= found.dead:
        return rows if world.ledgers else "stale"
    return "damaged"


def steps(world: World, rules: Rules) -> Iterator[World]:
    if world.live:
        yield replace(world, live=world.live - {min(world.live)})
    if world.snapshot != world.live:
        yield replace(world, snapshot=world.live)
    for number in (0, 1):
        yield from offloading(world, number, rules)
    yield from sweeping(world, rules)
    yield from reclaiming(world, rules)
    if world.reader is None:
        for rows in {world.live, world.snapshot}:
            yield replace(world, reader=(rows, "", ""))
    elif not world.reader[1]:
        yield replace(world, reader=(world.reader[0], world.kind, world.manifest))
    else:
        yield replace(world, reader=None)


def faults(world: World, rules: Rules) -> Iterator[str]:
    if world.reader is not None and world.reader[1]:
        found = read_rows(world, rules)
        if found == "damaged":
            yield "DAMAGED"
        elif not isinstance(found, str) and found != world.reader[0]:
            yield "WRONG"
    named = world.file(world.manifest) if world.manifest else None
    if named is not None and not world.whole(world.manifest):
        yield "OVERWRITTEN"
    have = ALL if world.ledgers else named.rows if named is not None else frozenset[int]()
    if world.live - have:
        yield "GONE"


def leaks(world: World, following: list[World]) -> bool:
    """Return whether everything is dead and idle but a file remains."""
    busy = any(one.step in ("slice", "manifest", "proof", "swap", "undo") for one in world.workers)
    over = not world.live and not world.snapshot and not busy and world.reader is None
    if not over or not (world.ledgers or world.files):
        return False
    return all(replace(one, reader=None) == world for one in following)


def explored(rules: Rules, found: Callable[[str], None]) -> int:
    """Visit every state that some order of steps reaches, report its faults, and return the number of states."""
    seen = {World()}
    waiting = deque(seen)
    while waiting:
        world = waiting.popleft()
        following = list(steps(world, rules))
        for fault in faults(world, rules):
            found(fault)
        if leaks(world, following):
            found("LEAK")
        for one in following:
            if one not in seen:
                seen.add(one)
                waiting.append(one)
    return len(seen)


def test_with_all_rules_nothing_goes_wrong_in_any_order() -> None:
    found: set[str] = set()
    assert explored(Rules(), found.add) > 5_000
    assert not found


@pytest.mark.parametrize(
    ("rules", "fault"),
    [
        (Rules(names=False), "OVERWRITTEN"),
        (Rules(compare=False), "LEAK"),
        (Rules(plan=False), "WRONG"),
        (Rules(dead=False), "DAMAGED"),
        (Rules(reclaim=False), "LEAK"),
    ],
)
def test_without_a_rule_something_goes_wrong(rules: Rules, fault: str) -> None:
    found: set[str] = set()
    explored(rules, found.add)
    assert fault in found
