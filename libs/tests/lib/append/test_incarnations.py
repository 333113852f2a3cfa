"""Who runs under one Log."""

from __future__ import annotations

from bokilib.append.incarnations import Incarnations


def test_each_has_a_token_of_its_own_and_who_ended_is_known() -> None:
    those = Incarnations("0a")
    first, second = those.give(), those.give()
    assert first == "0a" != second
    those.began(first)
    those.began(second)
    assert those.runs(first) and not those.over(first) and not those.over(second)
    those.ended(first)
    assert those.over(first) and not those.runs(first) and not those.over(second)
    assert those.give() not in (first, second)


def test_of_tokens_of_others_nothing_is_known() -> None:
    those = Incarnations("0a")
    assert not any(those.over(token) or those.runs(token) for token in ("", "0", "0b", "0a1", "0b-2"))
