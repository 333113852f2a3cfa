"""Command `python -m examples.wordcount`; see the package."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from examples import trial_command
from examples.wordcount.trial import trial, words_of

TEXT: Final = Path(__file__).parents[2] / "LICENSE"


def main() -> int:
    """Run a trial with the options of the command line, and return the exit code."""
    parser = trial_command.options("wordcount", "Count words by machines whose hosts are killed.", seconds=10.0)
    parser.add_argument("--text", type=Path, default=TEXT, help="file with the text (default: LICENSE)")
    asked = parser.parse_args()
    console = trial_command.console()

    def say(text: str) -> None:
        console.print(text, style="dim")

    words = words_of(asked.text.read_text())
    found = trial_command.run(
        "wordcount", None, lambda place: trial(place, words, seconds=asked.seconds, seed=asked.seed, say=say)
    )
    console.print(
        f"\n{found.sent:,} words, {found.distinct:,} different ones; hosts: {trial_command.killed_of(found.struck)}"
    )
    console.print(f"most frequent: {found.best[0]}, {found.best[1]:,} times\n")
    return trial_command.show(console, found.faults, ["each word was counted once"])


if __name__ == "__main__":
    sys.exit(main())
