"""Which copy of a directory is the one that served last: the table, the bytes, and a model of starts, crashes, late writes
and copies in every order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest

from boki_bookie.begin.life_rules import (
    SLOT_BYTES,
    Copy,
    Slot,
    StoredLife,
    decode_slot,
    encode_slot,
    judge_copy,
    next_number,
    slot_to_write,
)
from boki_common.bookkeeper.layout import CookieLife
from boki_common.errors import VersionMismatch

RAW_ID: Final = bytes(range(16))
A, B, C = (Slot(number, f"{number:032x}") for number in (1, 2, 3))


@pytest.mark.parametrize(
    ("slots", "checkpoint", "known", "expected"),
    [
        ((None, None), 4, None, Copy.CURRENT),
        ((A, None), 4, None, Copy.CURRENT),
        ((A, B), 4, None, Copy.FORGOTTEN),
        ((A, B), 4, CookieLife(*A), Copy.CURRENT),
        ((A, B), 4, CookieLife(*B, (4,)), Copy.CURRENT),
        ((A, B), 5, CookieLife(*B, (4,)), Copy.CURRENT),
        ((A, B), 3, CookieLife(*B, (4,)), Copy.OLDER),
        ((A, B), None, CookieLife(*B, (4,)), Copy.CURRENT),
        ((A, B), 4, CookieLife(*C), Copy.OLDER),
        ((None, None), 4, CookieLife(*A), Copy.OLDER),
        ((B, C), 4, CookieLife(*A), Copy.AHEAD),
        ((B, None), 4, CookieLife(B.number, A.token), Copy.OLDER),
    ],
)
def test_the_table(
    slots: tuple[Slot | None, Slot | None], checkpoint: int | None, known: CookieLife | None, expected: Copy
) -> None:
    assert judge_copy(StoredLife(slots, checkpoint), known, directory=0) is expected


def test_each_directory_is_held_against_its_own_checkpoint() -> None:
    known = CookieLife(*A, (7, 3))
    stored = StoredLife((A, None), 5)
    assert [judge_copy(stored, known, directory=number) for number in range(3)] == [
        Copy.OLDER,
        Copy.CURRENT,
        Copy.CURRENT,
    ]


def test_a_slot_is_what_was_written_and_nothing_when_any_bit_of_it_differs() -> None:
    page = encode_slot(B, RAW_ID)
    assert len(page) == SLOT_BYTES
    assert decode_slot(page, RAW_ID, name="LIFE") == B
    assert decode_slot(bytes(SLOT_BYTES), RAW_ID, name="LIFE") is None
    assert decode_slot(b"", RAW_ID, name="LIFE") is None
    assert decode_slot(page, bytes(16), name="LIFE") is None, "another bookie's"
    for bit in range(64 * 8):
        damaged = bytearray(page)
        damaged[bit // 8] ^= 1 << bit % 8
        assert decode_slot(bytes(damaged), RAW_ID, name="LIFE") is None


def test_a_newer_version_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boki_bookie.begin.life_rules.FORMAT_VERSION", 2)
    page = encode_slot(A, RAW_ID)
    monkeypatch.undo()
    with pytest.raises(VersionMismatch, match="somewhere/LIFE: expected life version 1, found 2"):
        decode_slot(page, RAW_ID, name="somewhere/LIFE")


# -- the model


STARTS: Final = 4
COPIES: Final = 1

Slots = tuple[Slot | None, ...]


class Run(NamedTuple):
    """One process on one copy of the directory."""

    step: str = "down"
    """down, judged, settled, written, serving."""
    read: CookieLife | None = None
    """The cookie when it was settled."""
    is_last: bool = True
    """Nobody wrote the cookie since."""
    drawn: Slot | None = None


class State(NamedTuple):
    """All of it: the bookie's own directory first, then copies of it. Of versions only the present one matters: a write at
    an earlier one cannot land."""

    cookie: CookieLife | None = None
    directories: tuple[Slots, ...] = ((None, None),)
    runs: tuple[Run, ...] = (Run(),)
    late: frozenset[CookieLife | None] = frozenset()
    """Writes at this version that were sent by processes that died, and may land."""
    drawn: int = 0
    """Lives so far: each token is its number."""
    made_at: tuple[int, ...] = (0,)
    """For each directory, how many lives had been drawn when it was the one that served, or a copy of that."""
    served: int = 0
    """The last life that served."""


def moves(state: State, *, alone: bool) -> Iterator[State]:
    """Everything that may happen next; `alone`: nobody starts a copy."""
    for at, run in enumerate(state.runs):
        if at == 0 or not alone:
            yield from _of_process(state, at, run)
    for life in state.late:
        yield _written(state, life)
    if len(state.directories) <= COPIES:
        yield state._replace(
            directories=(*state.directories, state.directories[0]),
            runs=(*state.runs, Run()),
            made_at=(*state.made_at, max(state.made_at[0], _begun(state))),
        )


def _begun(state: State) -> int:
    """The last life that the first directory has."""
    return StoredLife(state.directories[0]).number


def _written(state: State, life: CookieLife | None) -> State:
    """The cookie has another version."""
    runs = tuple(run._replace(is_last=False) if run.step in ("settled", "written") else run for run in state.runs)
    return state._replace(cookie=life, runs=runs, late=frozenset())


def _with(state: State, at: int, run: Run) -> State:
    return state._replace(runs=(*state.runs[:at], run, *state.runs[at + 1 :]))


def _of_process(state: State, at: int, run: Run) -> Iterator[State]:
    slots = state.directories[at]
    if run.step == "down":
        others = any(other.step == "serving" for other in state.runs)  # it is registered: this one waits
        if not others and state.drawn < STARTS and current(slots, state.cookie):
            yield _with(state, at, Run("judged"))
        return
    yield _with(state, at, Run())  # killed
    if run.step == "judged":
        yield _with(_written(state, state.cookie), at, Run("settled", state.cookie))
        yield _with(state, at, Run())._replace(late=state.late | {state.cookie})
    elif run.step == "settled" and current(slots, run.read):
        drawn = Slot(state.drawn + 1, f"{state.drawn + 1:032x}")
        place = slot_to_write(StoredLife(slots), run.read)
        for written, following in ((drawn, run._replace(step="written", drawn=drawn)), (None, Run())):
            new = tuple(written if number == place else slot for number, slot in enumerate(slots))
            directories = (*state.directories[:at], new, *state.directories[at + 1 :])
            yield _with(state, at, following)._replace(directories=directories, drawn=state.drawn + 1)
    elif run.step == "written" and run.is_last:
        assert run.drawn is not None
        life = CookieLife(*run.drawn)
        made_at = (*state.made_at[:at], life.number, *state.made_at[at + 1 :])
        yield _with(_written(state, life), at, Run("serving"))._replace(served=life.number, made_at=made_at)
        yield _with(_written(state, life), at, Run())
        yield _with(state, at, Run())._replace(late=state.late | {life})


def current(slots: Slots, known: CookieLife | None) -> bool:
    return judge_copy(StoredLife(slots), known, directory=0) is Copy.CURRENT


def explored(*, alone: bool) -> Iterator[tuple[State, State]]:
    """Every move from every state that can be reached."""
    seen = {State()}
    waiting = deque(seen)
    while waiting:
        state = waiting.popleft()
        for following in moves(state, alone=alone):
            yield state, following
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    print(f"{len(seen)} states explored")  # noqa: T201 - how much of the model was looked at


def test_a_healthy_bookie_is_never_locked_out_by_a_crash_or_a_late_write() -> None:
    for _, state in explored(alone=True):
        assert current(state.directories[0], state.cookie), state
        assert all(current(state.directories[0], life) for life in state.late), state


def test_no_directory_serves_that_missed_the_beginning_of_the_last_life_to_serve() -> None:
    """Neither a copy that was made before, nor the original where a copy has served."""
    served = 0
    for before, state in explored(alone=False):
        for at, (was, now) in enumerate(zip(before.runs, state.runs, strict=False)):
            if was.step != "serving" and now.step == "serving":
                served += 1
                assert before.made_at[at] >= before.served, state
    assert served > 100


def test_numbers_only_grow() -> None:
    assert next_number([StoredLife()], None) == 1
    assert next_number([StoredLife((A, C)), StoredLife((B, None))], None) == 4
    assert next_number([StoredLife((A, None))], CookieLife(9, "ab")) == 10
