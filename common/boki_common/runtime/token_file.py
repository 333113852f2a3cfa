"""The file that holds the cluster token: read before anything listens, and read again while a process runs.

    token = read_token(path)                         # blocks: before the loop starts
    token = await token_of(path)                     # in a thread
    async with kept_current(path, token): ...        # on SIGHUP, and when the file changed

A file that others may read is refused, as ssh does with keys. A file that cannot be used any more changes nothing: it is logged,
and what was valid stays valid.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from boki_common.background_tasks import ended
from boki_common.cluster_token import FILE_BYTES, NO_TOKEN, TO_MAKE_ONE, ClusterToken, parse
from boki_common.errors import SettingsError
from boki_common.logs import get_logger

LOOK_S: Final = 5.0
"""How often it is looked whether the file changed."""

_log = get_logger("token_file")


def read_token(path: str) -> ClusterToken:
    """The tokens that a file holds; of no path, `NO_TOKEN`. Blocks. Raises SettingsError: there is no such file, others may
    read it, or it holds no token."""
    if not path:
        return NO_TOKEN
    try:
        with Path(path).open("rb") as file:
            _check_mode(path, os.fstat(file.fileno()))
            content = file.read(FILE_BYTES + 1)
    except OSError as error:
        raise SettingsError(
            f"expected a file with the cluster token at {path}, found: {error.strerror}; make one: "
            f"(umask 077; {TO_MAKE_ONE} > {path})",
            path=path,
        ) from error
    if len(content) > FILE_BYTES:
        raise SettingsError(f"{path}: expected one or two cluster tokens, found a file of more than {FILE_BYTES} bytes")
    try:
        return parse(content.decode("ascii"), path)
    except UnicodeDecodeError:
        raise SettingsError(
            f"{path}: expected a cluster token of printable ASCII without spaces, found other characters"
        ) from None


def is_open_to_others(mode: int, *, mine: bool) -> bool:
    """Whether somebody may use a file with these permissions who should not know the token: of my own anybody else; of another
    user's file, which reaches me by my group (as an orchestrator mounts secrets), those who are in no group with me."""
    return bool(mode & (0o077 if mine else 0o007))


def _check_mode(path: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        return  # a pipe, or what a shell makes of `<(…)`: nobody reads it twice
    mode = stat.S_IMODE(found.st_mode)
    if is_open_to_others(mode, mine=found.st_uid == os.geteuid()):
        raise SettingsError(
            f"expected that nobody else may read the cluster token in {path}, found mode {mode:04o}: chmod 600 {path}",
            path=path,
        )


async def token_of(path: str) -> ClusterToken:
    """`read_token`, in a thread: a file may lie on a slow network."""
    return await asyncio.to_thread(read_token, path) if path else NO_TOKEN


class Keeper:
    """Keeps a token as its file has it. Use `kept_current`."""

    def __init__(self, path: str, token: ClusterToken) -> None:
        self._path = path
        self._token = token
        self._asked = asyncio.Event()
        self._looked = asyncio.get_running_loop().create_future()
        self._reported = ""

    def look(self) -> None:
        """Reads the file now, changed or not."""
        self._asked.set()

    async def looked(self) -> None:
        """Waits for the end of the next look."""
        await asyncio.shield(self._looked)

    async def run(self) -> None:
        seen = await asyncio.to_thread(_stamp, self._path)
        while True:
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._asked.wait()
            except TimeoutError:
                pass  # time for a look
            asked = self._asked.is_set()
            self._asked.clear()
            stamp = await asyncio.to_thread(_stamp, self._path)
            if stamp != seen or asked:
                seen = stamp
                await self._read(asked=asked)
            looked, self._looked = self._looked, asyncio.get_running_loop().create_future()
            looked.set_result(None)

    async def _read(self, *, asked: bool) -> None:
        try:
            changed = self._token.renew(await token_of(self._path))
        except SettingsError as error:
            if asked or str(error) != self._reported:
                _log.warning("the cluster token was not read again; those that were valid stay", error=error)
            self._reported = str(error)
            return
        self._reported = ""
        if changed or asked:
            _log.info("cluster token read again", file=self._path, valid=self._token.valid, changed=changed)


@asynccontextmanager
async def kept_current(path: str, token: ClusterToken) -> AsyncIterator[Keeper | None]:
    """While open, `token` is what the file holds: it is read again on SIGHUP, and a few seconds after it changed."""
    if not path:
        yield None
        return
    loop = asyncio.get_running_loop()
    keeper = Keeper(path, token)
    task = asyncio.ensure_future(keeper.run())
    loop.add_signal_handler(signal.SIGHUP, keeper.look)
    try:
        yield keeper
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        await ended(task)


def _stamp(path: str) -> tuple[int, ...]:
    """What changes when the file does; empty: there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode)
