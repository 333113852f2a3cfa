"""Errors that fail an attempt, and the wait before the redelivery."""

from __future__ import annotations

import asyncio

import pytest

import boki
from boki_common.errors import InvalidArgument
from bokilib import AtomicTooLarge, Fenced
from bokiqueue import StaleReceipt
from bokiqueue.attempts import OwnConflicts, backoff_s, failed, lost, stopped


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("no"), "failed"),
        (InvalidArgument("no"), "failed"),
        (AtomicTooLarge("a record too large"), "failed"),
        (boki.Conflict("lost", actual={}, position=1), "lost"),
        (Fenced("taken over", tag="t", claim=1), "lost"),
        (StaleReceipt("decided", found=1, expected=None), "lost"),
        (boki.Unreachable("the engine is away"), "neither"),
        (SystemExit(1), "failed"),
        (BaseExceptionGroup("two", [asyncio.CancelledError(), SystemExit(1)]), "failed"),
        (BaseExceptionGroup("two", [asyncio.CancelledError(), KeyboardInterrupt()]), "stopped"),
        (GeneratorExit(), "stopped"),
        (KeyboardInterrupt(), "stopped"),
        (asyncio.CancelledError(), "stopped"),
    ],
)
def test_a_handler_that_raised_failed_and_what_was_lost_or_stopped_did_not(error: BaseException, kind: str) -> None:
    found = [name for name, says in (("failed", failed), ("lost", lost), ("stopped", stopped)) if says(error)]
    assert (found or ["neither"]) == [kind]


def test_it_comes_again_later_each_time_up_to_a_minute() -> None:
    assert [backoff_s(attempt) for attempt in (0, 1, 2, 3, 7, 1_000)] == [1, 1, 2, 4, 60, 60]
    assert backoff_s(3, 0.5) == 2


def test_a_conflict_counts_once_it_came_three_times_and_nobody_wrote() -> None:
    conflicts = OwnConflicts()

    def stuck(place: int, number: int = 1) -> bool:
        return conflicts.stuck((0, number, 0), boki.Conflict("lost", actual={"a": place}, position=9))

    assert [stuck(5), stuck(5), stuck(6), stuck(6), stuck(5, 2), stuck(6), stuck(6)] == [False] * 5 + [True, True]
    conflicts.forget((0, 1, 0))
    assert not stuck(6)
