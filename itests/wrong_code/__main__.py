"""`python -m itests.wrong_code --count 10000 --seconds 60`: one run; its figures, and exit code 1 if a promise is broken."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from itests.wrong_code.trial import trial


def say(line: str) -> None:
    """Write a line."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    made = argparse.ArgumentParser(prog="python -m itests.wrong_code")
    made.add_argument("--count", type=int, default=10_000)
    made.add_argument("--seconds", type=float, default=60.0)
    made.add_argument("--settle", type=float, default=600.0)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--stuck-after", type=float, default=0.5)
    made.add_argument("--block", type=float, default=1.5)
    asked = made.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="boki-wrong-code-"))
    found = asyncio.run(
        trial(
            directory,
            count=asked.count,
            seconds=asked.seconds,
            settle_s=asked.settle,
            seed=asked.seed,
            stuck_after_s=asked.stuck_after,
            block_s=asked.block,
            say=say,
        )
    )
    say(f"{found.kills} kills; settled {found.settled_s:.1f} s after the last; {directory}")
    for what, count in sorted(found.became.items()):
        say(f"{count:6} {what}")
    for fault in found.faults:
        say(f"FAULT: {fault}")
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
