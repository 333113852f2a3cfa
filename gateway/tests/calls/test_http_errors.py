"""Every error there is has a status that fits what it says of itself."""

from __future__ import annotations

import msgspec
import pytest

from boki_common import errors
from boki_common.errors import BokiError, Conflict, InvalidArgument, UsageError
from boki_gateway import server
from boki_gateway.calls import events
from boki_gateway.calls.http_errors import RETRYABLE, STATUSES, error_answer, status_of
from boki_gateway.errors import BodyIncomplete

ALSO_DECLARED_BY = (events, server)
"""Modules of the gateway that may declare errors: imported, so that the tree has them."""


def tree(root: type[BokiError]) -> list[type[BokiError]]:
    return [root, *(found for child in root.__subclasses__() for found in tree(child))]


@pytest.mark.parametrize("kind", tree(BokiError), ids=lambda kind: kind.__name__)
def test_status_and_claims_agree(kind: type[BokiError]) -> None:
    error = kind.__new__(kind, "x")  # some want to know more than a message
    BokiError.__init__(error, "x")
    status = status_of(error)
    if not kind.definite:
        assert status >= 500, "what perhaps was applied is no plain refusal"
    if kind.retryable:
        assert status in RETRYABLE, "what may succeed later has a status that clients repeat"
    if issubclass(kind, UsageError) and kind not in (errors.ClosedError, errors.SettingsError):
        assert 400 <= status < 500, "the caller's mistake"


def test_each_row_is_of_the_tree() -> None:
    assert set(STATUSES) <= set(tree(BokiError))


def test_a_class_without_a_row_has_that_of_its_base() -> None:
    class Own(errors.LogBookError):
        """Only here."""

    class Unsure(errors.LogBookError):
        """Perhaps applied."""

        definite = False

    class Later(errors.StorageError):
        """May succeed."""

        retryable = True

    assert status_of(Own("x")) == STATUSES[errors.LogBookError]
    assert (status_of(Unsure("x")), status_of(Later("x"))) == (504, 503)
    assert status_of(InvalidArgument("x")) == 400
    assert status_of(BodyIncomplete("x")) == 408


def test_facts_become_json_that_javascript_keeps() -> None:
    error = Conflict(
        "m",
        actual={"a": 5, 7: None},
        position=6,
        found=2**53,
        expected=2**53 - 1,
        raw=b"\xff",
        seqnums=[1, 2],
        kind=BokiError,
        forgotten=[9, "~x", "y"],
        book=3,
        tag=None,
        by={7: 8},
    )
    answer = msgspec.json.decode(msgspec.json.encode(error_answer(error)))
    assert answer == {
        "error": "Conflict",
        "message": "m",
        "facts": {
            "actual": {"a": "5", "~7": None},
            "position": "6",
            "found": str(2**53),
            "expected": 2**53 - 1,
            "raw": "/w==",
            "seqnums": ["1", "2"],
            "kind": str(BokiError),
            "forgotten": ["~9", "~~x", "y"],
            "book": "~3",
            "tag": None,
            "by": {"7": 8},
        },
        "retryable": False,
        "definite": True,
    }


def test_what_changes_nothing_was_certainly_not_applied() -> None:
    late = errors.CallTimeout("no answer in time")
    assert (error_answer(late).definite, error_answer(late, changes=False).definite) == (False, True)
