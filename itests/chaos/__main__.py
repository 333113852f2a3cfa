"""`make chaos SECONDS=600`: a cluster on ZooKeeper and programs of all libraries, both killed and stopped all the time.

Exit code 1 if a promise was broken; then the directory with all logs and notes stays. 2: there is no ZooKeeper here.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from boki_common.runtime.process import loop_factory
from examples import trial_command
from itests.chaos.trial import TrialResult, trial
from itests.support.java_server import ServerMissing

HOLDS = (
    "each order that was acknowledged was handled once, in the record of its effect and receipt, and those of a key in order",
    "each workflow ended once, with its result; each step and transaction of it has one outcome",
    "each move of money happened once or not at all, as its caller was told; no cent is missing",
    "each append through the gateway is at its place, once, in the order of its numbers",
    "each transfer of the bank was done or refused once, as its client was told; after each record all money was there",
    "a program that begins now reads what the log says, and nothing waits",
)


def report(console: Console, found: TrialResult) -> None:
    """Print the result of a trial for a person."""
    console.print(f"\n{found.seconds:.0f} s; " + ", ".join(f"{count:,} {what}" for what, count in found.did.items()))
    console.print(f"struck: {trial_command.killed_of(found.struck)}\n")


def main() -> int:
    """The entry point; returns the exit code."""
    parser = trial_command.options("chaos", __doc__, seconds=60.0)
    parser.prog = "python -m itests.chaos"
    asked = parser.parse_args()
    console = trial_command.console()

    def say(text: str) -> None:
        console.print(text, style="dim")

    directory = Path(tempfile.mkdtemp(prefix="boki-chaos-"))
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            found = runner.run(trial(directory, seconds=asked.seconds, seed=asked.seed, say=say))
    except ServerMissing as error:
        console.print(f"chaos needs ZooKeeper: {error}")
        return 2
    report(console, found)
    code = trial_command.show(console, found.faults, HOLDS)
    if code:
        console.print(
            f"\nlogs and notes: {directory}; the same strikes again: make chaos SECONDS={asked.seconds:g} SEED={asked.seed}"
        )
    else:
        shutil.rmtree(directory, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
