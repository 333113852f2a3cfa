"""What a workflow's code looks at without a record of it (`Instance.look`): asked until it is known.

An answer is in no record, so it has to be the same in each replay: an error that may be another one, or none, the next time is
no answer. It is asked again for as long as it takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from boki_common.errors import BokiError
from bokiflow.errors import CannotLook
from bokiflow.runtime.commands import SnapshotRead
from bokilib.pauses import pauses


async def answers(looks: Sequence[SnapshotRead], place: int) -> list[Any]:
    """Of each, as of a place. Raises CannotLook."""
    return list(await asyncio.gather(*(_answer(look, place) for look in looks)))


async def _answer(look: SnapshotRead, place: int) -> Any:
    pause = pauses()
    while True:
        try:
            return await look.read(place)
        except BokiError as error:
            if not error.retryable:
                raise CannotLook(f"what a workflow looks at cannot be read: {type(error).__name__}: {error}") from error
        await asyncio.sleep(pause.next())
