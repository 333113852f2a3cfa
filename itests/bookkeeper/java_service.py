"""Apache's Java client as a process to talk to: `java/LedgerService.java` behind a pipe, for as many ledgers as a test likes.

    java = await JavaService.start(apache)
    ledger = await java("create", protocol="v2", digest="CRC32C", password="key", bookies="a,b,c", spare="d")
    await java("append", ledger=ledger, entries=["one", "two"])
    java.kill()                                 # SIGKILL, as a writer dies

Commands may be under way side by side. What Java throws arrives as `JavaError`, with the name of its class. Another program that
speaks the same way can be started instead.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any, Final, Self

from itests.support.apache_bookkeeper import ApacheBookkeeper

SOURCE: Final = Path(__file__).parent / "java" / "LedgerService.java"
PREFIX: Final = b"boki: "
LINE_BYTES: Final = 16 * 1024 * 1024


class JavaError(Exception):
    """A command failed in Java; `kind` is the simple name of the exception's class."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class JavaService:
    """See the module. Belongs to one event loop."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._ended = ""
        """The end of its log, once it is gone."""
        self._task = asyncio.create_task(self._read_answers(), name="answers of the Java client")

    @classmethod
    async def start(cls, apache: ApacheBookkeeper, source: Path = SOURCE) -> Self:
        """Compiles the program when that was not done, starts it on the cluster. Raises ServerMissing."""
        program = source.stem
        if not (apache.folder / f"{program}.class").exists():
            await asyncio.to_thread(apache.compile, source)
        log = apache.folder / f"{program}.log"
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *apache.command(program, apache.apache_uri),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                limit=LINE_BYTES,
            )
        return cls(process, log)

    async def __call__(self, do: str, **arguments: object) -> Any:
        """Runs a command of the program. Raises JavaError, and EOFError with the end of its log when it is gone."""
        if self._ended:
            raise EOFError(self._ended)
        number = next(self._numbers)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": number, "do": do, **arguments}).encode() + b"\n")
        try:
            return await future
        finally:
            del self._waiting[number]

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL; what is under way fails."""
        if self._process.returncode is None:
            self._process.kill()

    async def close(self) -> None:
        """Ends the process, without closing its ledgers. Idempotent."""
        self.kill()
        await self._task
        await self._process.wait()

    async def _read_answers(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if line.startswith(PREFIX):  # the client logs to standard output too
                self._take(json.loads(line.removeprefix(PREFIX)))
        tail = (await asyncio.to_thread(self._log.read_text, errors="replace"))[-3_000:]
        self._ended = f"the Java client ended: {tail}"
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(EOFError(self._ended))

    def _take(self, answer: dict[str, Any]) -> None:
        future = self._waiting.get(answer["id"])
        if future is None or future.done():
            return
        if "error" in answer:
            future.set_exception(JavaError(answer["error"], answer["message"]))
        else:
            future.set_result(answer["found"])
