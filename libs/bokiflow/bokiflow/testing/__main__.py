"""The program `python -m bokiflow.testing MODULE:NAME < history`; see `_elsewhere`."""

from __future__ import annotations

import asyncio
import sys

from bokiflow.testing._elsewhere import DIFFERS, replay_here

if __name__ == "__main__":
    differs = asyncio.run(replay_here(sys.argv[1], sys.stdin.buffer.read()))
    if differs is not None:
        sys.stdout.buffer.write(differs)
        sys.exit(DIFFERS)
