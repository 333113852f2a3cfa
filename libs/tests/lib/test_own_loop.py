"""Calls from another event loop than the one that an object belongs to."""

from __future__ import annotations

import asyncio

import pytest

import boki
from bokilib.own_loop import check_here


async def test_only_the_own_loop_passes_and_without_one_any() -> None:
    loop = asyncio.get_running_loop()
    check_here(loop, "it", "do that")
    check_here(None, "it", "do that")

    def in_thread() -> None:
        with pytest.raises(boki.WrongLoop, match=r"expected it in the event loop .*: nothing was done; do that"):
            check_here(loop, "it", "do that")

    await asyncio.to_thread(in_thread)
