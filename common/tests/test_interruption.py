"""A Ctrl-C of a person, and a KeyboardInterrupt that code raises by itself, are told apart."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from boki_common.interruption import interrupted


def raises() -> None:
    raise KeyboardInterrupt


def is_sent_a_signal() -> None:
    signal.raise_signal(signal.SIGINT)


def exits() -> None:
    raise SystemExit(3)


@pytest.mark.parametrize(("call", "expected"), [(raises, False), (is_sent_a_signal, True), (exits, False)])
def test_the_interrupt_of_a_person_is_told_apart(call: Callable[[], None], expected: bool) -> None:
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(BaseException) as caught:
            call()
    finally:
        signal.signal(signal.SIGINT, previous)
    assert interrupted(caught.value) is expected
    assert not interrupted(KeyboardInterrupt())
