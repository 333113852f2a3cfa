"""A history, replayed from every place of it: as if the workflow had been dropped from memory after each record."""

from __future__ import annotations

from typing import Final

import msgspec

from bokiflow.client.app import App
from bokiflow.client.replayer import replay

TIMES: Final = 5
"""Of the whole history: what hashes by its address is elsewhere each time."""


async def replays_everywhere(app: App, history: bytes) -> int:
    """Replays each beginning of a history, and the whole several times; returns how many replays that were.

    Args:
        history: as `replayer.export` makes it.

    Raises:
        NonDeterminism: the code does not do again what it did. NotRegistered. CorruptData: this is no history.
    """
    await replay(app, history)
    whole = msgspec.json.decode(history)
    records = whole["records"]
    kept: list[list[object]] = []  # what is made between two replays, so that addresses differ
    for count in [*range(len(records)), *[len(records)] * TIMES]:
        kept.append([object() for _ in range(97)])
        await replay(app, msgspec.json.encode({**whole, "records": records[:count]}))
    return len(records) + TIMES + 1
