"""Runs commands in this process as a shell would: arguments and standard input in, exit code and both outputs back.

    outcome = run_command_line("append", "-", "--book", "b", "--url", url, stdin=b'{"user": 7}\\n')
    assert outcome.code == 0, outcome.err

For tests. Commands have an event loop of their own, so this cannot be called from a coroutine.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import NamedTuple, TextIO, TypeAlias

from click import termui
from click.testing import CliRunner

from boki.testing import MemoryCluster
from boki_cli import options
from boki_cli.main import boki
from boki_common.runtime.loop_thread import LoopThread


class Outcome(NamedTuple):
    """What a shell sees of a command."""

    code: int
    out: str
    err: str

    def refused(self, *messages: str, code: int = 2) -> None:
        """Asserts that it ended with that exit code and all these messages."""
        assert self.code == code, self
        assert all(message in self.err for message in messages), self.err


RunCommandLine: TypeAlias = Callable[..., Outcome]


class Terminal(io.StringIO):
    """A terminal on which answers were typed, one a line."""

    def isatty(self) -> bool:
        return True

    def answer(self, prompt: str) -> str:
        """Print a question and return the next line. Raises EOFError: nothing more was typed."""
        sys.stdout.write(prompt)
        line = self.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")


def run_command_line(*arguments: str, stdin: bytes = b"", typed: str | None = None) -> Outcome:
    """Run one command line of `boki`.

    Args:
        arguments: of the command line, without the name of the program.
        stdin: content of the pipe that is its standard input.
        typed: makes standard input a terminal on which this was typed.
    """
    with CliRunner().isolation() as (out, err, _), _piped(stdin) as pipe:
        sys.stdin = pipe
        if typed is not None:
            sys.stdin = Terminal(typed)
            termui.visible_prompt_func = sys.stdin.answer  # the isolation puts click's own back
        code = options.run(boki, arguments)
        return Outcome(code, out.getvalue().decode(), err.getvalue().decode())


@contextmanager
def memory_cluster() -> Iterator[str]:
    """The URL of a cluster in memory whose loop runs in a thread: each command has a loop of its own."""
    thread = LoopThread("a cluster in memory")
    stack = AsyncExitStack()
    try:
        yield thread.run(stack.enter_async_context(MemoryCluster())).url
        thread.run(stack.aclose())
    finally:
        thread.stop()


@contextmanager
def _piped(content: bytes) -> Iterator[TextIO]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)  # a command waits until it is readable; a read that blocks would be a fault

    def write() -> None:
        with os.fdopen(writing, "wb") as pipe:
            try:
                pipe.write(content)
            except BrokenPipeError:
                pass  # a command may end without reading all of its input

    writer = threading.Thread(target=write)
    writer.start()
    with os.fdopen(reading) as pipe:
        yield pipe
    writer.join(10)
