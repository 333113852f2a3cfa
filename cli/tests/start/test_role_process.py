"""A role that ends by itself ends its process with its error and code 70, whatever carries the error."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import msgspec
import pytest

import boki
from boki_cli.exit_codes import INTERNAL, RoleFailed, exit_code
from boki_cli.roles import Kind, process_settings
from boki_cli.start.role_commands import serve
from boki_cli.start.role_process import ending_as_the_role_failed, until_failed
from boki_common.errors import BokiError, DiskFailed, Unreachable
from itests.support.processes import running

if TYPE_CHECKING:
    from boki_cli.roles import RunningRole

BROKEN = DiskFailed("the disk failed")
ENDS: dict[str, tuple[Callable[[asyncio.Future[Any]], object], str]] = {
    "raises": (lambda failed: failed.set_exception(BROKEN), "DiskFailed: the disk failed"),
    "gives": (lambda failed: failed.set_result(BROKEN), "DiskFailed: the disk failed"),
    "a fault": (lambda failed: failed.set_exception(KeyError("x")), "KeyError: 'x'"),
    "a group": (
        lambda failed: failed.set_exception(
            ExceptionGroup("two", [BROKEN, ExceptionGroup("one", [Unreachable("away")])])
        ),
        "DiskFailed: the disk failed; Unreachable: away",
    ),
    "is cancelled": (lambda failed: failed.cancel(), "was cancelled: a fault of boki"),
    "returns": (lambda failed: failed.set_result(None), "ended without an error: a fault of boki"),
}
"""How what a role's `failed` is may end, and what the error says then."""


@pytest.mark.parametrize("how", ENDS)
async def test_whatever_carries_the_error_the_role_failed(how: str) -> None:
    end, said = ENDS[how]
    sound, failed = (asyncio.get_running_loop().create_future() for _ in range(2))
    end(failed)
    with pytest.raises(RoleFailed) as raised:
        await until_failed({"engine": sound, "bookie 1": failed}, asyncio.Event())
    assert str(raised.value).startswith("the bookie 1 ") and said in str(raised.value)
    assert [exit_code(raised.value, writes=writes) for writes in (False, True)] == [INTERNAL, INTERNAL]
    sound.cancel()


async def test_a_stop_is_no_failure() -> None:
    stop = asyncio.Event()
    stop.set()
    await until_failed({"engine": asyncio.get_running_loop().create_future()}, stop)


def test_what_goes_wrong_while_the_rest_is_closed_does_not_hide_it() -> None:
    failed = RoleFailed("the engine failed")
    with pytest.raises(RoleFailed) as raised, ending_as_the_role_failed():
        try:
            raise failed
        finally:
            raise Unreachable("no bookie answers") from OSError()
    assert raised.value is failed
    with pytest.raises(RoleFailed) as raised, ending_as_the_role_failed():
        raise ExceptionGroup("many", [ValueError(), ExceptionGroup("more", [failed])])
    assert raised.value is failed
    with pytest.raises(Unreachable), ending_as_the_role_failed():
        raise Unreachable("a role that never served")


@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize("how", ["raises", "gives", "is cancelled"])
async def test_every_role_ends_with_what_it_failed_with(tmp_path: Path, kind: Kind, how: str) -> None:
    flags = {"metadata": f"sqlite://{tmp_path}/m.db", "data": tmp_path / "data", "listen": ("127.0.0.1:0",)}
    end, said = ENDS[how]

    def announce(role: RunningRole, _page: str) -> None:
        assert isinstance(role.failed, asyncio.Future)
        end(role.failed)

    with pytest.raises(RoleFailed, match=f"the {kind} .*{said}"):
        await serve(kind, process_settings(None, flags), announce=announce, stop=asyncio.Event())


@pytest.mark.processes
async def test_a_process_whose_journal_fails_ends_with_its_error_and_code_70(
    tmp_path: Path,
) -> None:
    """The limit of a file's size makes the next write of the journal fail, as a broken disk does."""
    log = tmp_path / "log"
    where = ("--data", tmp_path / "data", "--listen", "127.0.0.1:0", "--gateway-port", "-1")
    async with running("dev", *where, log=log) as one:
        async with await boki.connect(one.url, timeout=1) as client:
            await client.book("b").append(b"1")
            resource.prlimit(one.process.pid, resource.RLIMIT_FSIZE, (16_384, 16_384))
            with pytest.raises(BokiError):
                await client.book("b").append(b"2", timeout=1)
        async with asyncio.timeout(20):
            assert await one.process.wait() == INTERNAL
    said = [line for line in log.read_text().splitlines() if line.startswith("{")]
    error = msgspec.json.decode(said[-1])
    assert (error["error"], error["exit_code"], error["facts"]["role"]) == ("RoleFailed", INTERNAL, "bookie 1")
    assert "File too large" in error["message"]
