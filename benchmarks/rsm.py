"""Reliable state machines beside Restate's virtual objects, DBOS, actors on PostgreSQL and their own appends, in one run.

    python -m benchmarks.rsm [--quick] [--only PART …] [--json FILE] [--plots DIRECTORY]           (`make bench-rsm`)

Parts, each on a cluster of its own processes (three bookies, E = Qw = 3, Qa = 2, metadata in SQLite), every write flushed on all sides:

    counters    1,000 counters, 32 clients: additions that are answered after their commit; beside all peers
    ping-pong   100 bytes to and fro between machines of two hosts; beside an append, actors and a call of a virtual object
    words       the word count of the paper, 8 counters, batches of 256 words and of one; beside actors, and tasks without durability
    creation    machines that a client creates one by one, beside an append; appends of 10,000 that ten handlers create
    producer    batches from a producer to a consumer, 100 B to 64 KB, beside append_many of the same batches
    deferred    32 MiB that one machine defers: bytes appended
    appends     records that each operation takes, beside the table of records
    kill        kill -9 of the host of 100,000 machines, of which 1,000 have input: until another has handled it
    idle        a million machines that do nothing, beside a thousand: memory, processor time, and disk over three terms

What is compared is measured in interleaved rounds. Actors: asyncio tasks, one transaction of PostgreSQL a batch (`benchmarks.rsm_actors`).
The exit code is 0 whatever falls short. How fair it is: docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from benchmarks import command, rsm_appends, rsm_compared, rsm_many
from benchmarks.bench import Bench


class Scaled(Bench):
    """A run with the scale of the parts that have many machines."""

    def __init__(self, arguments: argparse.Namespace, directory: Path) -> None:
        super().__init__(arguments, directory)
        self.scale: float = arguments.scale


PARTS: Final[Mapping[str, Callable[[Scaled], Awaitable[None]]]] = {
    "counters": rsm_compared.part_counters,
    "ping-pong": rsm_compared.part_ping_pong,
    "words": rsm_compared.part_words,
    "creation": rsm_appends.part_creation,
    "producer": rsm_appends.part_producer,
    "deferred": rsm_appends.part_deferred,
    "appends": rsm_appends.part_appends,
    "kill": rsm_many.part_kill,
    "idle": rsm_many.part_idle,
}


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = command.options(
        "rsm",
        "Reliable state machines beside others, in one run.",
        quick="short rounds, few machines",
        parts=PARTS,
        seconds=3.0,
        plots="PNG of what is kept of idle machines",
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of kill and idle: 1 has 100,000 machines and a million"
    )
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.seconds, arguments.scale = 2, 1.0, min(arguments.scale, 0.01)
    return arguments


def main() -> int:
    arguments = parsed()
    with command.workplace(arguments) as directory:
        bench = Scaled(arguments, directory)
        facts = command.run(arguments.only or PARTS, lambda name: PARTS[name](bench), directory)
    command.show("rsm", "reliable state machines", arguments, facts, bench)
    if arguments.plots:
        rsm_many.plot(arguments.plots, bench.series)
    return 0


if __name__ == "__main__":
    sys.exit(main())
