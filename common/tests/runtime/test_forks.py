"""A child reports what it copied, and keeps it; the parent is not notified, and keeps nothing."""

from __future__ import annotations

import gc
import os
import warnings
import weakref

import pytest

from boki_common.runtime import forks

pytestmark = [pytest.mark.blocking_allowed, pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")]


class Opened:
    """Counts its notifications."""

    def __init__(self) -> None:
        self.notified = 0
        forks.watch(self)

    def forked(self) -> None:
        self.notified += 1


def exit_code_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_each_child_is_notified_once_of_what_there_is_and_the_parent_is_not() -> None:
    one, other = Opened(), Opened()
    del other
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads that other tests left
        pid = os.fork()
    if not pid:
        os._exit(10 + one.notified)
    assert exit_code_of(pid) == 11
    assert one.notified == 0


def test_what_was_copied_is_not_taken_apart_in_the_child() -> None:
    one = Opened()
    seen = weakref.ref(one)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        del one
        gc.collect()
        os._exit(0 if seen() is not None else 1)
    assert exit_code_of(pid) == 0
    del one
    gc.collect()
    assert seen() is None


def test_the_error_says_what_to_do() -> None:
    assert "this client was opened in another process" in str(forks.opened_elsewhere("this client"))
    assert "connect after the fork" in str(forks.opened_elsewhere("this client"))
