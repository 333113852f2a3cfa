"""One bug of a log: who had it, what was lost, how it comes back here, and how it is found.

An exhibit names a *mutation*: exact text of our sources and what to put there, so that the bug is ours again. It is found by

- a `Hunt`: simulated clusters under a seed, until an invariant or a checker of histories tells a violation of one of `rules`;
- a `Scenario`: a scripted test of one interleaving, that fails.

Both hold without the mutation. `planted` makes a copy of the sources with the mutation in it; ours are never touched.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

from itests.mutations.mutation import COPIED, FAILED, ROOT, Mutation, copy_sources, mutate, run_tests

MUSEUM: Final = "itests/museum"
LEDGERS: Final = "ledgers"
CLUSTER: Final = "cluster"
HUNT_LIMIT_S: Final = 600.0
"""No planted bug may stay hidden for longer."""
_RUN_LIMIT_S: Final = 180.0
"""A single seed that takes longer hangs."""

World = Literal["ledgers", "cluster"]


@dataclass(frozen=True, slots=True)
class Hunt:
    """SearchResult by the simulator.

    Attributes:
        world: bookies and ledger clients only (`ledger_world`), or everything.
        profile: which faults.
        rules: the violation is of one of these.
    """

    world: World
    profile: str
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """SearchResult by a scripted test, `path::name`; the mutation names it. `said`: what its failure says."""

    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhibit:
    """See the module. Texts are sentences of the page."""

    system: str
    issue: str
    link: str
    lost: str
    story: str
    instead: str
    mutation: Mutation
    found: Hunt | Scenario = Scenario()

    @property
    def name(self) -> str:
        """What the command calls it."""
        return self.mutation.name.replace(" ", "-").replace(",", "")


class SearchResult(NamedTuple):
    """The result of a search. `seed` is None for a scenario, and where nothing was found."""

    bug: bool
    seed: int | None
    seconds: float
    text: str


@contextmanager
def planted(mutation: Mutation | None) -> Iterator[Path]:
    """A copy of the sources with the bug in it."""
    target = Path(tempfile.mkdtemp(prefix="boki-museum-"))
    try:
        copy_sources(target)
        shutil.copytree(ROOT / MUSEUM, target / MUSEUM, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "itests/mutations", target / "itests/mutations", dirs_exist_ok=True)
        if mutation is not None:
            mutate(target, mutation)
        yield target
    finally:
        shutil.rmtree(target)


def search(root: Path, exhibit: Exhibit, *, seeds: Sequence[int] = (), limit_s: float = HUNT_LIMIT_S) -> SearchResult:
    """Looks for an exhibit's bug in the sources below `root`.

    Args:
        seeds: those to try; by default all from 1 on.
    """
    begun = time.perf_counter()
    if isinstance(exhibit.found, Scenario):
        code, output = run_tests(root, exhibit.mutation.test)
        said = exhibit.found.said in output
        return SearchResult(code == FAILED and said, None, time.perf_counter() - begun, output[-3_000:])
    return _hunt(root, exhibit.found, seeds, limit_s)


def _hunt(root: Path, hunt: Hunt, seeds: Sequence[int], limit_s: float) -> SearchResult:
    path = os.pathsep.join([str(root), *(str(root / name) for name in COPIED if (root / name).is_dir())])
    command = [sys.executable, "-m", "itests.museum.hunt", hunt.world, "--profile", hunt.profile]
    command += ["--seconds", str(limit_s)]
    command += [part for rule in hunt.rules for part in ("--rule", rule)]
    command += [part for seed in seeds for part in ("--seed", str(seed))]
    begun = time.perf_counter()
    try:
        done = subprocess.run(
            command,
            cwd=root,
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s + _RUN_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return SearchResult(False, None, time.perf_counter() - begun, "a seed does not end")
    if not done.stdout.strip():
        return SearchResult(False, None, time.perf_counter() - begun, done.stderr[-3_000:])
    said = json.loads(done.stdout.splitlines()[-1])
    text = "\n".join(said["violations"])
    return SearchResult(said["seed"] is not None, said["seed"], float(said["seconds"]), text)
