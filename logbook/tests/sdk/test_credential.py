"""What a client shows: which of the arguments, the URL and the environment counts, and what is refused at once."""

from __future__ import annotations

from pathlib import Path

import pytest

import boki
from boki import sync
from boki._credential import NOTHING, credential_of
from boki_common.errors import InvalidArgument, SettingsError

SECRET = "a-token-of-the-cluster-01"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.write_text(SECRET)
    path.chmod(0o600)
    return str(path)


async def test_who_was_given_nothing_shows_nothing() -> None:
    assert await NOTHING.current() is None
    assert await credential_of(None, None, "").current() is None


async def test_arguments_win_over_what_url_and_environment_name(file: str, tmp_path: Path) -> None:
    elsewhere = str(tmp_path / "none")
    assert await credential_of(SECRET, None, elsewhere).current() == SECRET
    assert await credential_of(None, file, elsewhere).current() == SECRET
    assert await credential_of(None, None, file).current() == SECRET
    with pytest.raises(SettingsError, match="expected a file with the cluster token"):
        await credential_of(None, None, elsewhere).current()


async def test_the_file_is_read_each_time(file: str) -> None:
    credential = credential_of(None, file, "")
    assert await credential.current() == SECRET
    Path(file).write_text("another-token-of-it-0002\n" + SECRET)
    assert await credential.current() == "another-token-of-it-0002"


@pytest.mark.parametrize("token", ["", "short", "with blanks in the middle", f"{SECRET}\n{SECRET}x", 7, b"x" * 20])
def test_what_can_be_no_token_is_refused_without_showing_it(token: object) -> None:
    with pytest.raises(InvalidArgument) as refused:
        vars(boki.connect("boki://127.0.0.1", token=token))  # type: ignore[arg-type]
    assert SECRET not in str(refused.value)


def test_a_token_and_a_file_are_one_too_many(file: str) -> None:
    with pytest.raises(InvalidArgument, match="found both"):
        vars(boki.connect("boki://127.0.0.1", token=SECRET, token_file=file))


def test_the_token_is_not_in_the_repr_of_anything() -> None:
    credential = credential_of(SECRET, None, "")
    assert SECRET not in repr(credential) + repr(vars(boki.connect("boki://127.0.0.1", token=SECRET)))


def test_the_blocking_face_takes_the_same(file: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="found both"):
        sync.connect("boki://127.0.0.1", token=SECRET, token_file=file)
    with pytest.raises(SettingsError, match="expected a file with the cluster token"):
        sync.connect("boki://127.0.0.1:1", token_file=tmp_path / "none")
    with pytest.raises(InvalidArgument, match=r"\?token_file=/path"):
        sync.connect("boki://127.0.0.1?token=secret")
