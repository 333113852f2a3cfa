"""Command `python -m examples.banking`; see the package."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Final

from examples import trial_command
from examples.banking.checks import OPENING
from examples.banking.trial import trial

CHECKED: Final = (
    "each audit found all money, in accounts and on its way",
    "each transfer was done once or refused: the balances follow from the answers",
    "a question that was repeated got the same answer",
)


def main() -> int:
    """Run a trial with the options of the command line, and return the exit code."""
    parser = trial_command.options("banking", "Transfer money by machines whose hosts are killed.", seconds=20.0)
    asked = parser.parse_args()
    console = trial_command.console()

    def say(text: str) -> None:
        console.print(text, style="dim")

    found = trial_command.run(
        "banking", None, lambda place: trial(place, seconds=asked.seconds, seed=asked.seed, say=say)
    )
    outcomes = Counter(answer.outcome for answer in found.answers)
    console.print(
        f"\n{len(found.answers):,} transfers: "
        + ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.most_common())
    )
    console.print(f"{len(found.audits):,} audits of {OPENING * len(found.balances):,} cents")
    console.print(f"hosts: {trial_command.killed_of(found.struck)}\n")
    return trial_command.show(console, found.faults, CHECKED)


if __name__ == "__main__":
    sys.exit(main())
