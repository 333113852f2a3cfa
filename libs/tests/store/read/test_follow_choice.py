"""Which objects are followed."""

from __future__ import annotations

from bokistore.read.followed import AGAIN_S, IDLE_S, FollowChoice


def follows(choice: FollowChoice, name: str, now_s: float) -> bool:
    """Reads one of the log, and follows it if that is what it comes to."""
    if not choice.read_from_log(name, now_s):
        return False
    there, gone = choice.room(now_s)
    if gone is not None:
        choice.drop(gone)
    if there:
        choice.read(name, now_s)
    return there


def test_what_is_read_twice_is_followed_and_what_is_read_once_is_not() -> None:
    choice = FollowChoice(2)
    assert not follows(choice, "a", 0)
    assert not follows(choice, "b", 1)
    assert follows(choice, "a", 2)
    assert "a" in choice and "b" not in choice
    assert not follows(choice, "b", AGAIN_S + 2), "that was long ago"
    assert not choice.read_from_log("a", 3), "it is followed already"


def test_who_reads_more_in_turn_than_may_be_followed_does_not_exchange_them() -> None:
    choice = FollowChoice(3)
    names = [f"o{number}" for number in range(9)]
    followed = set()
    for turn in range(20):
        for name in names:
            if name in choice:
                choice.read(name, turn)
            elif follows(choice, name, turn):
                followed.add(name)
    assert len(followed) <= 3


def test_the_longest_unread_gives_its_place_up_once_nobody_reads_it() -> None:
    choice = FollowChoice(2)
    for now_s, name in enumerate(["a", "b", "a", "b"]):
        follows(choice, name, now_s)
    choice.read("a", 10)
    for now_s in (11, 12):
        assert not follows(choice, "c", now_s)
    assert not choice.idle("b", 12) and choice.idle("b", 3 + IDLE_S)
    follows(choice, "c", IDLE_S + 4)
    assert follows(choice, "c", IDLE_S + 4)
    assert "c" in choice and "b" not in choice and "a" in choice


def test_candidates_are_as_many_as_may_be_followed() -> None:
    choice = FollowChoice(2)
    for name in ("a", "b", "c"):
        assert not follows(choice, name, 0)
    assert not follows(choice, "a", 1), "two others came since"
