"""Appends of this tree beside those of another commit, so interleaved that a noisy machine is noisy for both.

    python -m benchmarks.beside COMMIT [--rounds N] [--seconds S] [--json FILE]         (`make bench-beside COMMIT=main~10`)

Two clusters, each of its own code, with its client in a process of its own (`beside_child`). They run at the same time and work
in turn: each round measures each workload on both, whichever is first by lot; what is shown are medians, over rounds, of this
tree's figure divided by the other's of the same round. The other commit is checked out to a temporary directory and runs with
this tree's libraries. Compared with itself, a commit is within some 3 % in 25 rounds on a machine whose figures vary by 30 %.

The exit code is 0 whatever falls short.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks import report
from benchmarks.append import APPEND_WORKLOADS, MANY
from benchmarks.report import Ratio, Row

ROOT: Final = Path(__file__).parent.parent
WORKLOADS: Final = tuple(one.name for one in (*APPEND_WORKLOADS[:3], MANY))
TOLERANCE: Final = 0.03
_KEYS: Final = ("append_1", "append_64", "append_1024", "append_many")


class Side:
    """One of the two."""

    def __init__(self, tree: Path) -> None:
        self._child: Final = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.beside_child"],
            cwd=tree, env=environment(tree), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        if not self._answer():
            raise RuntimeError(f"expected a cluster of {tree}, found that its process ended with {self._child.wait()}")

    def measure(self, workload: str, seconds: float) -> Row:
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps([workload, seconds]) + "\n")
        self._child.stdin.flush()
        return Row(**json.loads(self._answer()))

    def close(self) -> None:
        """Ends the cluster."""
        self._child.communicate()

    def _answer(self) -> str:
        assert self._child.stdout is not None
        return self._child.stdout.readline()


def environment(tree: Path) -> dict[str, str]:
    """What leads Python to the packages of a tree, before those that are installed."""
    project = tomllib.loads((tree / "pyproject.toml").read_text())
    folders = [tree / folder for folder in project["tool"]["hatch"]["build"]["dev-mode-dirs"]]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [tree, *folders]))}


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """The tree of a commit, with this tree's `beside_child`."""
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory(prefix="boki-beside-") as name:
        tree = Path(name)
        subprocess.run(["tar", "-x", "-C", name], input=packed, check=True)
        (tree / "benchmarks/beside_child.py").write_bytes((ROOT / "benchmarks/beside_child.py").read_bytes())
        yield tree


def measure(here: Side, other: Side, rounds: int, seconds: float) -> dict[str, list[tuple[Row, Row]]]:
    """By workload: (this tree's row, the other's) of each round; a round before them warms up."""
    found: dict[str, list[tuple[Row, Row]]] = {name: [] for name in WORKLOADS}
    for number in range(rounds + 1):
        sys.stderr.write(f"round {number} of {rounds}\n")
        for name in WORKLOADS:
            sides = [here, other]
            random.shuffle(sides)
            rows = {side: side.measure(name, seconds) for side in sides}
            if number:
                found[name].append((rows[here], rows[other]))
    return found


def ratios(found: Mapping[str, Sequence[tuple[Row, Row]]]) -> list[Ratio]:
    """Latency of one append, rate of many and processor time, this tree's over the other's."""
    made = []
    for key, (name, rows) in zip(_KEYS, found.items(), strict=True):

        def over(figure: Callable[[Row], float], rows: Sequence[tuple[Row, Row]] = rows) -> float:
            return statistics.median(figure(here) / figure(other) for here, other in rows)

        if name == WORKLOADS[0]:
            made.append(Ratio(f"{key}_p50_over_other", over(lambda row: row.p50_ms), "<=", 1 + TOLERANCE))
        else:
            made.append(Ratio(f"{key}_per_s_over_other", over(lambda row: row.per_s), ">=", 1 - TOLERANCE))
        made.append(Ratio(f"{key}_cpu_over_other", over(lambda row: sum(row.cpu_us.values())), "<=", 1 + TOLERANCE))
    return made


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("commit", help="what this tree is set beside")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=0.4, help="of each workload on each side in each round")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the whole run")
    arguments = parser.parse_args()
    with checked_out(arguments.commit) as tree:
        here, other = Side(ROOT), Side(tree)
        try:
            found = measure(here, other, arguments.rounds, arguments.seconds)
        finally:
            here.close()
            other.close()
    rows = [
        report.median_row([pair[side] for pair in pairs])._replace(name=f"{name}, {which}")
        for name, pairs in found.items()
        for side, which in enumerate(("here", "other"))
    ]
    made = ratios(found)
    report.draw(f"Boki beside {arguments.commit}, {arguments.rounds} rounds", {}, rows, made)
    if arguments.json:
        report.write_json(arguments.json, {"benchmark": "beside", "commit": arguments.commit}, rows, made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
