"""Stack traces of users' code: without the frames of Boki's own."""

from __future__ import annotations

import pytest

from bokilib.stacks import frames_of, is_ours, shown, users_frames, users_traceback, without_our_frames

OURS = """  File "/usr/lib/python3/site-packages/bokiqueue/consume/handlers.py", line 38, in run
    await self.body(message, tx)
"""
USERS = """  File "/srv/boki/shop.py", line 7, in charge
    raise ValueError(card)
    ^^^^^^^^^^^^^^^^^^^^^^
"""


@pytest.mark.parametrize(
    ("file", "ours"),
    [
        ("/usr/lib/python3/site-packages/boki/_book.py", True),
        ("/src/boki/libs/bokiqueue/bokiqueue/consume/handlers.py", True),
        ("C:\\site-packages\\bokilib\\log.py", True),
        ("/srv/boki/shop.py", False),
        ("/srv/shop/bokilib.py", False),
        ("<string>", False),
    ],
)
def test_files_of_boki_are_known_wherever_they_are_installed(file: str, ours: bool) -> None:
    assert is_ours(file) == ours


def test_a_formatted_stack_keeps_the_frames_of_users() -> None:
    assert without_our_frames(f"ValueError\n{OURS}{USERS}") == f"ValueError\n{USERS}".rstrip("\n")
    assert without_our_frames(OURS) == OURS and without_our_frames("") == ""


def _made(name: str, body: str) -> object:
    """Return a function that is defined in a file of this name."""
    found: dict[str, object] = {}
    exec(compile(body, name, "exec"), found)
    return found["run"]


_OURS_CALL = "def run(body):\n    body()\n"


def _raised(body: object) -> BaseException:
    ours = _made("/x/bokiqueue/consume/handlers.py", _OURS_CALL)
    assert callable(ours)
    with pytest.raises(BaseException) as found:
        ours(body)
    return found.value.with_traceback(found.value.__traceback__.tb_next if found.value.__traceback__ else None)


def test_a_traceback_begins_with_the_code_of_users_in_causes_and_groups_too() -> None:
    def charge() -> None:
        try:
            raise BaseExceptionGroup("two", [_raised(lambda: 1 / 0)])
        except BaseExceptionGroup as group:
            raise ValueError("card") from group

    shown = users_traceback(_raised(charge), 20)
    assert "bokiqueue" not in shown
    assert "in charge" in shown and "ZeroDivisionError" in shown and shown.endswith("ValueError: card\n")


def test_a_traceback_of_boki_alone_is_whole_and_a_long_one_keeps_its_ends() -> None:
    ours = _made("/x/bokilib/log.py", "def run():\n    raise ValueError(1)\n")
    assert "bokilib/log.py" in users_traceback(_raised(ours), 20)

    def deeper(most: int) -> None:
        if most:
            return shallower(most - 1)
        raise ValueError("deep")

    def shallower(most: int) -> None:
        deeper(most)

    def begin() -> None:
        deeper(100)

    shown = users_traceback(_raised(begin), 5)
    assert shown.count("  File ") == 5 and "in begin" in shown and 'raise ValueError("deep")' in shown


async def test_a_coroutine_that_waits_shows_its_calls() -> None:
    async def inner() -> None:
        pass

    async def outer() -> None:
        await inner()

    waiting = outer()
    frames = frames_of(waiting, 10)
    assert [frame.name for frame in frames] == ["outer"] and frames_of(waiting, 0) == []
    assert users_frames(frames) == frames
    waiting.close()


def test_a_value_in_the_text_of_an_error_is_short_and_says_that_it_was_cut() -> None:
    assert shown("a" * 78) == repr("a" * 78)
    assert shown("a" * 5_000) == f"'{'a' * 79}… (cut: 5,002 characters)"
    assert shown("\ud800") == "'\\ud800'" and shown(b"k" * 9, 4) == "b'kk… (cut: 12 characters)"


def test_a_value_that_cannot_be_shown_is_named_by_its_type() -> None:
    class Secret:
        def __repr__(self) -> str:
            raise SystemExit(1)

    class Odd:
        def __repr__(self) -> str:
            return "\ud800"

    assert shown(10**5_000) == "a value of type int, which cannot be shown"
    assert shown(Secret()).endswith("Secret, which cannot be shown") and shown(Odd()) == "\\ud800"
