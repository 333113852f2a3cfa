"""The message of a handshake, against its bytes as protobuf has them; who says it is whom."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.bookkeeper import auth
from boki_common.errors import ProtocolError


def test_the_answer_without_authentication_has_apaches_bytes() -> None:
    """Field 1: the name of the plugin that is not there; field 2: no token."""
    assert auth.encode(auth.NO_AUTHENTICATION) == b"\x0a\x12AuthDisabledPlugin\x12\x00"


@given(st.text(), st.binary())
def test_messages_survive_the_wire(plugin: str, token: bytes) -> None:
    message = auth.AuthMessage(plugin, token)
    assert auth.decode(memoryview(auth.encode(message))) == message


@pytest.mark.parametrize("data", [b"", b"\x0a\x01x", b"\x12\x00", b"\x0a\xff\xff\xff\xff\x0f"])
def test_other_bytes_are_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="expected the name of an authentication plugin"):
        auth.decode(data)


def test_a_bookie_answers_its_id_to_a_greeting_in_these_bytes_only() -> None:
    assert auth.answer(auth.greeting("b1"), "b1") == auth.greeting("b1")
    assert auth.answer(auth.greeting("b2"), "b1") == auth.greeting("b1")
    assert auth.answer(auth.AuthMessage("sasl", b"b1"), "b1") == auth.NO_AUTHENTICATION
    assert auth.answer(auth.greeting("b1"), "") == auth.NO_AUTHENTICATION


def test_only_a_bookie_that_says_so_is_another() -> None:
    assert auth.is_other(auth.greeting("b2"), "b1")
    assert auth.is_other(auth.greeting(""), "b1")
    assert not auth.is_other(auth.greeting("b1"), "b1")
    assert not auth.is_other(auth.NO_AUTHENTICATION, "b1")
