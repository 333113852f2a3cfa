"""What a session has seen only grows, per log."""

from __future__ import annotations

import pytest

from boki._session import Session, View, parse_token, token_text
from boki_common.errors import InvalidArgument
from boki_common.ids import Position


def test_positions_grow_per_log() -> None:
    session = Session({0: Position(1, 5)})
    session.merge({0: Position(1, 4), 1: Position(3, 1)})
    session.merge({0: Position(2, 0), 1: Position(2, 9)})
    assert session.positions == {0: Position(2, 0), 1: Position(3, 1)}


def test_text_and_back() -> None:
    for token in ({}, {0: Position(1, 2)}, {log: Position(2**28 - 1, 2**64 - 1) for log in range(40)}):
        assert parse_token(token_text(token)) == token


def test_a_changed_letter_is_noticed() -> None:
    text = token_text({0: Position(1, 2), 9: Position(8, 7)})
    for index in range(len(text)):
        changed = text[:index] + ("A" if text[index] != "A" else "B") + text[index + 1 :]
        with pytest.raises(InvalidArgument, match="session token"):
            parse_token(changed)


def test_a_view_only_goes_on() -> None:
    session = Session()
    view = View(session, 7)
    view.saw({0: Position(1, 5)}, 50)
    view.saw({0: Position(1, 4), 1: Position(2, 1)}, 40)
    assert view.position == 50
    assert session.positions == {0: Position(1, 5), 1: Position(2, 1)}
