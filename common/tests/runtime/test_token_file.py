"""The file with the cluster token: who may read it, what is said of what it holds, and that it is read again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from boki_common import logs
from boki_common.cluster_token import NO_TOKEN
from boki_common.errors import SettingsError
from boki_common.runtime import token_file
from boki_common.runtime.token_file import Keeper, is_open_to_others, kept_current, read_token, token_of

OLD = "old-token-0123456789abcdef"
NEW = "new-token-0123456789abcdef"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    write(path, OLD)
    return path


def write(path: Path, *tokens: str, mode: int = 0o600) -> None:
    """As administrators should: never half of it."""
    other = path.with_suffix(".new")
    other.write_text("\n".join(tokens) + "\n")
    other.chmod(mode)
    other.replace(path)


def test_a_file_of_its_owner_alone_is_read(file: Path) -> None:
    assert read_token(str(file)).shown == OLD


async def test_within_a_loop_it_is_read_in_a_thread(file: Path) -> None:
    assert (await token_of(str(file))).shown == OLD
    assert await token_of("") is NO_TOKEN


def test_no_path_means_no_token() -> None:
    assert read_token("") is NO_TOKEN


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o610, 0o601])
def test_a_file_that_others_may_use_is_refused_with_its_mode_and_the_remedy(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(SettingsError, match=f"nobody else may read .* found mode {mode:04o}: chmod 600") as refused:
        read_token(str(file))
    assert OLD not in str(refused.value)


@pytest.mark.parametrize(
    ("mode", "mine", "refused"),
    [
        (0o600, True, False),
        (0o400, True, False),
        (0o440, True, True),
        (0o404, True, True),
        (0o640, False, False),
        (0o644, False, True),
    ],
)
def test_my_own_file_is_mine_alone_and_a_file_of_another_may_reach_me_by_my_group(
    mode: int, mine: bool, refused: bool
) -> None:
    assert is_open_to_others(mode, mine=mine) is refused


def test_a_file_that_is_not_there_is_named_with_the_way_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"expected a file with the cluster token at .*none.*umask 077"):
        read_token(str(tmp_path / "none"))


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="expected a file with the cluster token"):
        read_token(str(tmp_path))


@pytest.mark.parametrize("content", [b"\xff\xfe" * 20, b"x" * 10_000, "für-alle-zusammen".encode()])
def test_what_holds_something_else_is_refused_without_showing_it(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(SettingsError) as refused:
        read_token(str(file))
    assert str(file) in str(refused.value) and content.decode("latin-1")[:12] not in str(refused.value)


async def hang_up(keeper: Keeper | None) -> None:
    assert keeper is not None
    os.kill(os.getpid(), signal.SIGHUP)
    await keeper.looked()


async def test_a_hangup_signal_has_it_read_again(file: Path) -> None:
    token = await token_of(str(file))
    async with kept_current(str(file), token) as keeper:
        write(file, NEW, OLD)
        await hang_up(keeper)
        assert token.shown == NEW and token.accepts(OLD)


async def test_a_change_is_found_without_a_signal(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_file, "LOOK_S", 0.01)
    token = await token_of(str(file))
    async with kept_current(str(file), token) as keeper:
        assert keeper is not None
        await keeper.looked()
        write(file, OLD, NEW)
        while token.valid == 1:
            await keeper.looked()
        write(file, NEW)
        while token.accepts(OLD):
            await keeper.looked()
        assert token.shown == NEW


@pytest.mark.parametrize("broken", ["gone", "open", "empty"])
async def test_a_file_that_cannot_be_used_any_more_changes_nothing_and_is_said(
    file: Path, broken: str, capfd: pytest.CaptureFixture[str]
) -> None:
    token = await token_of(str(file))
    with logs.configured(level="warning"):
        async with kept_current(str(file), token) as keeper:
            if broken == "gone":
                file.unlink()
            elif broken == "open":
                write(file, NEW, mode=0o644)
            else:
                write(file, "")
            await hang_up(keeper)
            said = capfd.readouterr().err
            assert "was not read again" in said and OLD not in said and NEW not in said
            assert token.shown == OLD and token.accepts(OLD)
            write(file, NEW)
            await hang_up(keeper)
            assert token.shown == NEW


async def test_without_a_file_nothing_is_kept_and_a_hangup_means_what_it_always_did() -> None:
    before = signal.getsignal(signal.SIGHUP)
    async with kept_current("", NO_TOKEN) as keeper:
        assert keeper is None and signal.getsignal(signal.SIGHUP) == before
