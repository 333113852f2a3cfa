"""Replay of a history in other processes, in which texts have other hashes, so that sets of them have another order.

python -m bokiflow.testing shop.flows:app < history         exit code 0: it fits; 1: a line of JSON says what differs
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable
from typing import Final

import msgspec

from boki_common.errors import UsageError
from bokiflow.client.app import named_app
from bokiflow.client.replayer import replay
from bokiflow.errors import NonDeterminism

SEEDS: Final = (1, 2, 3, 4)
DIFFERS: Final = 1


class _Differs(msgspec.Struct):
    message: str
    id: str
    expected: str
    found: str


async def replays_elsewhere(app: str, history: bytes, *, hash_seeds: Iterable[int] = SEEDS) -> None:
    """Replay a history in a process of its own for each seed of hashes (`PYTHONHASHSEED`).

    Args:
        app: `module:name`, as Python finds it from the folder that the test runs in.
        history: a history from `replayer.export`.
        hash_seeds: the seeds.

    Raises:
        NonDeterminism: the workflow depends on the order of a set, or on another property of its process.
        UsageError: the process cannot find or import the app.
    """
    for seed in hash_seeds:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bokiflow.testing", app),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        )
        out, errors = await process.communicate(history)
        if process.returncode == DIFFERS and out:
            differs = msgspec.json.decode(out, type=_Differs)
            raise NonDeterminism(
                f"under PYTHONHASHSEED={seed}: {differs.message}; is the order of a set what decides?",
                id=differs.id,
                expected=differs.expected,
                found=differs.found,
            )
        if process.returncode:
            raise UsageError(f"{app!r} could not be replayed: {errors.decode(errors='replace')[-2_000:]}", found=app)


async def replay_here(app: str, history: bytes) -> bytes | None:
    """Replay a history in this process; return the line of JSON that says what differs, or None if it fits."""
    try:
        await replay(named_app(app), history)
    except NonDeterminism as error:
        facts = {name: str(error.facts.get(name, "")) for name in ("id", "expected", "found")}
        return msgspec.json.encode(_Differs(str(error), **facts))
    return None
