"""Watching an engine: asked once when it is silent, then dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from boki._watch import Watch
from boki_common.errors import BokiError


class Watched:
    """What is watched, and its only engine."""

    closed = False
    peer_name = "engine"

    def __init__(self) -> None:
        self.owed = True
        self.looked = 0
        self.questions: list[asyncio.Future[memoryview]] = []
        self.dropped: list[BokiError] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []

    @property
    def peer(self) -> Any:
        return self if not self.dropped else None

    @property
    def connection(self) -> Any:
        return self

    def abort(self, error: BokiError) -> None:
        self.dropped.append(error)

    def give_up_old(self) -> None:
        self.looked += 1

    def ask_position(self) -> asyncio.Future[memoryview]:
        self.questions.append(asyncio.get_running_loop().create_future())
        return self.questions[-1]

    def call_later(self, after_s: float, look: Callable[[], None]) -> Any:
        self.timers.append((after_s, look))
        return self

    def cancel(self) -> None:
        self.timers.clear()

    def look(self) -> None:
        """The timer goes off."""
        ((_, look),) = self.timers
        self.timers.clear()
        look()


def watch_of(watched: Watched) -> Watch:
    watch = Watch(watched, watched.call_later, 5.0, 2.0)
    watch.begin()
    return watch


async def test_a_silent_engine_is_asked_once_then_dropped() -> None:
    watched = Watched()
    watch = watch_of(watched)
    watch.begin()
    assert [after_s for after_s, _ in watched.timers] == [2.0], "one timer, however often something begins to be owed"
    watched.look()
    assert len(watched.questions) == 1 and not watched.dropped
    watched.look()
    assert len(watched.questions) == 1 and "silent for 10.0 s" in str(watched.dropped[0])


async def test_an_engine_that_answers_the_question_is_kept() -> None:
    watched = Watched()
    watch_of(watched)
    for turn in range(1, 6):
        watched.look()
        assert len(watched.questions) == turn
        watched.questions[-1].set_result(memoryview(b""))
        await asyncio.sleep(0)
        watched.look()
    assert not watched.dropped


async def test_an_engine_that_answered_is_not_asked() -> None:
    watched = Watched()
    watch = watch_of(watched)
    for _ in range(5):
        watch.received()
        watched.look()
    assert not watched.questions and watched.looked == 6


async def test_nothing_is_watched_while_nothing_is_owed_or_after_the_end() -> None:
    watched = Watched()
    watch = watch_of(watched)
    watched.owed = False
    watched.look()
    assert not watched.timers
    watched.owed = True
    watch.begin()
    watch.close()
    assert not watched.timers
