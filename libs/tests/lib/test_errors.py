"""Errors of libraries: whether they are retryable and definite."""

from __future__ import annotations

import boki
from bokilib import errors


def test_what_is_definite_and_whose_fault_it_is() -> None:
    assert issubclass(errors.AtomicTooLarge, boki.InvalidArgument)
    assert issubclass(errors.WrongBook, boki.InvalidArgument) and errors.WrongBook.definite
    assert issubclass(errors.AppendUnknown, boki.OutcomeUnknown) and not errors.AppendUnknown.definite
    for kind in (
        errors.Fenced,
        errors.ForeignRecord,
        errors.UnknownEvent,
        errors.NoPayloadHook,
        errors.PayloadHookFailed,
    ):
        assert issubclass(kind, boki.LogBookError) and kind.definite and not kind.retryable


def test_a_hook_that_is_unavailable_may_be_called_again_and_one_that_failed_may_not() -> None:
    unavailable = errors.PayloadHookUnavailable
    assert issubclass(unavailable, boki.LogBookError) and unavailable.definite and unavailable.retryable
    assert not issubclass(unavailable, errors.PayloadHookFailed), "what catches the failure takes it for final"


async def test_an_unknown_outcome_can_be_asked() -> None:
    class Ticket:
        async def outcome(self, *, settle: bool = False) -> object:
            return settle

    error = errors.AppendUnknown("perhaps", Ticket(), number=7)
    assert (await error.outcome(), await error.outcome(settle=False), error.number) == (True, False, 7)
