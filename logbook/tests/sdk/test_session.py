"""What a session has seen only grows, per log."""

from __future__ import annotations

import pytest

from boki._numbers import Numbers
from boki._outbox import Outbox
from boki._session import Session, cluster_mark, parse_token, positions_of, token_text
from boki_common.errors import InvalidArgument, WrongCluster
from boki_common.ids import Position


def test_positions_grow_per_log() -> None:
    session = Session({0: Position(1, 5)})
    session.merge({0: Position(1, 4), 1: Position(3, 1)})
    session.merge({0: Position(2, 0), 1: Position(2, 9)})
    assert session.positions == {0: Position(2, 0), 1: Position(3, 1)}


def test_text_and_back() -> None:
    for token in ({}, {0: Position(1, 2)}, {log: Position(2**28 - 1, 2**64 - 1) for log in range(40)}):
        for cluster in (None, 0, 2**64 - 1):
            assert parse_token(token_text(token, cluster)) == (token, cluster)


def test_tokens_of_the_version_before_are_read_and_of_no_known_cluster() -> None:
    text = "boki1.AQAAAAAAAQAAAAQAAAAAAAAAUpkg1g"
    assert parse_token(text) == ({0: Position(1, 4)}, None)
    assert positions_of(text, 7) == {0: Position(1, 4)}
    assert token_text({0: Position(1, 4)}, None) == text


def test_a_token_of_another_cluster_is_refused_at_once() -> None:
    text = token_text({0: Position(1, 4)}, 7)
    assert positions_of(text, 7) == positions_of(text, None) == {0: Position(1, 4)}
    with pytest.raises(WrongCluster, match=r"\(0000000000000008\), found one of another \(0000000000000007\)"):
        positions_of(text, 8)


def test_a_cluster_without_a_name_has_no_mark() -> None:
    assert cluster_mark("") is None
    assert cluster_mark("a") not in (None, cluster_mark("b"))


def test_a_changed_letter_is_noticed() -> None:
    text = token_text({0: Position(1, 2), 9: Position(8, 7)}, 7)
    for index in range(len(text)):
        changed = text[:index] + ("A" if text[index] != "A" else "B") + text[index + 1 :]
        with pytest.raises(InvalidArgument, match="session token"):
            parse_token(changed)


def test_a_view_only_goes_on() -> None:
    session = Session()
    view = Numbers(session, 7, Outbox())
    view.saw({0: Position(1, 5)}, 50)
    view.saw({0: Position(1, 4), 1: Position(2, 1)}, 40)
    assert view.position == 50
    assert session.positions == {0: Position(1, 5), 1: Position(2, 1)}
