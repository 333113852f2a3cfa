"""Every error of the tree has an exit code; the ones that people script against are pinned."""

from __future__ import annotations

import pytest

from boki_cli import exit_codes
from boki_cli.exit_codes import CheckFailed, RoleFailed, exit_code
from boki_common import errors


@pytest.mark.parametrize(
    ("kind", "reading", "writing"),
    [
        (CheckFailed, 1, 1),
        (RoleFailed, 70, 70),
        (errors.InvalidArgument, 2, 2),
        (errors.SettingsError, 2, 2),
        (errors.RecordTooLarge, 2, 2),
        (errors.Unreachable, 3, 3),
        (errors.MetadataUnavailable, 3, 3),
        (errors.NoSequencer, 3, 3),
        (errors.OrderUnknown, 3, 5),
        (errors.NotEnoughBookies, 3, 3),
        (errors.ConnectionLost, 3, 5),
        (errors.CallTimeout, 3, 5),
        (errors.MetadataUnknown, 3, 5),
        (errors.OutcomeUnknown, 5, 5),
        (errors.EntryUnknown, 4, 5),
        (errors.Conflict, 4, 4),
        (errors.Overloaded, 4, 4),
        (errors.WrongDirectory, 4, 4),
        (errors.CorruptData, 4, 4),
        (errors.LedgerFenced, 4, 5),
    ],
)
def test_exit_codes(kind: type[errors.BokiError], reading: int, writing: int) -> None:
    assert exit_code(kind("it failed"), writes=False) == reading
    assert exit_code(kind("it failed"), writes=True) == writing


def _all(root: type[errors.BokiError]) -> list[type[errors.BokiError]]:
    return [root, *(kind for child in root.__subclasses__() for kind in _all(child))]


def _made(kind: type[errors.BokiError]) -> errors.BokiError:
    """An error of the kind, whatever else its maker wants to know."""
    error = kind.__new__(kind, "it failed")
    errors.BokiError.__init__(error, "it failed")
    return error


def test_every_error_has_one_and_a_definite_one_never_means_unknown() -> None:
    named = {exit_codes.CHECK_FAILED, exit_codes.USAGE, exit_codes.UNREACHABLE, exit_codes.REFUSED}
    for kind in set(_all(errors.BokiError)) - {RoleFailed}:
        code = exit_code(_made(kind), writes=True)
        assert code in named if kind.definite else code == exit_codes.OUTCOME_UNKNOWN, kind
