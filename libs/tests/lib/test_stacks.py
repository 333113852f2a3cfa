"""Stack traces of users' code: without the frames of Boki's own."""

from __future__ import annotations

import pytest

from bokilib.stacks import frames_of, is_ours, users_frames, users_traceback, without_our_frames

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
