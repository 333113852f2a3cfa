"""Errors: facts, both flags, the way over the wire."""

from __future__ import annotations

import msgspec
import pytest

from boki_common import errors
from boki_common.errors import BokiError, Conflict, OutcomeUnknown, ProtocolError, RemoteError


def all_errors() -> list[type[BokiError]]:
    """Of this package: which others are there depends on what was imported before."""
    mine = [kind for kind in errors._tree(BokiError).values() if kind.__module__.startswith("boki_common.")]
    return sorted(mine, key=lambda kind: kind.__name__)


def test_facts_are_attributes() -> None:
    error = Conflict("newer record", actual={7: 12}, position=99)
    assert (error.actual, error.position) == ({7: 12}, 99)
    with pytest.raises(AttributeError, match="no fact 'ledger_id'"):
        _ = error.ledger_id


_TYPES = {"ProtocolError": ProtocolError, "Unheard": RemoteError}


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_every_error_crosses_the_wire_with_its_facts(kind: type[BokiError]) -> None:
    sent = kind("expected 1, found 2", found=2, ids=[1, 2])
    received = errors.from_wire(errors.to_wire(sent))
    assert type(received) is kind
    assert str(received) == str(sent)
    assert received.facts == {"found": 2, "ids": [1, 2]}


def test_unknown_error_of_a_newer_peer_is_a_remote_error_with_unknown_outcome() -> None:
    class FromTheFuture(Exception):
        pass

    received = errors.from_wire(errors.to_wire(FromTheFuture("boom")))
    assert isinstance(received, RemoteError)
    assert received.kind == "FromTheFuture"
    assert not received.definite


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"\x93\x01\x02\x03",
        b"nonsense",
        b"\x93\xa1\xff\xa0\x80",
        b"\x93\xa1a\xa1b\x81\xa1c" + b"\x91" * 100_000,
    ],
)
def test_bytes_that_are_no_error_become_a_protocol_error(body: bytes) -> None:
    assert isinstance(errors.from_wire(body), ProtocolError)


@pytest.mark.parametrize("name", ["message", "self", "kind", "facts", "args", "definite", "", "a b"])
def test_an_error_crosses_the_wire_with_facts_of_any_name(name: str) -> None:
    """Names of a constructor's own arguments too: a peer chooses them."""
    for kind in ("ProtocolError", "Unheard"):
        received = errors.from_wire(msgspec.msgpack.encode([kind, "x", {name: 1}]))
        assert (type(received), str(received).endswith("x")) == (_TYPES[kind], True)
        assert received.facts[name] == ("Unheard" if (kind, name) == ("Unheard", "kind") else 1)
        assert type(received.definite) is bool, "a fact never stands in for what the class says"


def test_an_error_whose_constructor_asks_for_more_arrives_without_it() -> None:
    class Particular(BokiError):
        def __init__(self, message: str, ticket: object, **facts: object) -> None:
            super().__init__(message, **facts)
            self.ticket = ticket

    received = errors.from_wire(errors.to_wire(Particular("x", object(), found=1)))
    assert (type(received), str(received), received.facts) == (Particular, "x", {"found": 1})


def test_whatever_may_have_been_applied_says_so() -> None:
    indefinite = {kind.__name__ for kind in all_errors() if not kind.definite}
    assert {"ConnectionLost", "CallTimeout", "MetadataUnknown", "LedgerFenced", "OutcomeUnknown"} <= indefinite
    assert {"TermEndedMeanwhile", "OrderUnknown"} <= indefinite
    assert not {"Unreachable", "Overloaded", "Conflict", "BadVersion", "LedgerClosed", "TermOver"} & indefinite


def test_the_same_error_for_somebody_else_has_all_but_the_traceback() -> None:
    cause = OSError(5, "disk")
    try:
        raise OutcomeUnknown("perhaps", number=7, book=1) from cause
    except OutcomeUnknown as caught:
        error = caught
    error.add_note("read the book")
    other = error.again()
    assert type(other) is OutcomeUnknown and other is not error
    assert (str(other), other.facts, other.number, other.__cause__) == ("perhaps", error.facts, 7, cause)
    assert other.__traceback__ is None
    other.add_note("of the other")
    assert error.__notes__ == ["read the book"]


@pytest.mark.parametrize("kind", all_errors())
def test_every_error_can_be_raised_again(kind: type[BokiError]) -> None:
    other = kind("what", found=3).again()
    assert (type(other), str(other), other.found) == (kind, "what", 3)
