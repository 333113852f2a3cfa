"""A real ZooKeeper server for tests, started from jars: no Docker, no installation.

    server = ZookeeperServer.start(folder)      # raises ServerMissing with the reason
    server.hosts                                # "127.0.0.1:port"
    server.pause(), server.resume()             # SIGSTOP, SIGCONT
    server.kill(), server.restart()             # SIGKILL; the same data and port
    server.stop()

The jars are those in the folder that `BOKI_ZOOKEEPER_JARS` names, else they are brought once into `.cache/zookeeper` of the
repository (see `java_server`).

The server has a heap of 64 MB and tickTime 200, so that sessions may be as short as 0.4 s and at most 4 s.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final, Self

from boki_common.net.lasting_ports import lasting_port
from itests.support import java_server
from itests.support.java_server import JavaServer, find_java

ROOT: Final = Path(__file__).parents[2]
POM: Final = Path(__file__).parent / "maven" / "zookeeper.pom.xml"
CHECKSUMS: Final = Path(__file__).parent / "maven" / "zookeeper.sha256"
"""SHA-256 and path in a Maven repository of each jar the server needs; the pom names the same versions."""
VERSION: Final = "3.9.5"
CACHE: Final = ROOT / ".cache" / "zookeeper" / VERSION

START_TIMEOUT_S: Final = 30.0
JAVA_FLAGS: Final = ("-Xmx64m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

LOOPBACK: Final = "127.0.0.1"


class ZookeeperServer(JavaServer):
    """One server process, by default on 127.0.0.1. Its data and port outlive `kill` and `stop`."""

    def __init__(self, java: str, jars: Path, folder: Path, host: str) -> None:
        self.folder = folder
        self.host = host
        self.port = lasting_port(host)
        self.hosts = f"{host}:{self.port}"
        command = [
            java,
            *JAVA_FLAGS,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            f"{jars}/*",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(folder / "zoo.cfg"),
        ]
        super().__init__("ZooKeeper", command, folder / "log", timeout_s=START_TIMEOUT_S)

    @classmethod
    def start(cls, folder: Path, host: str = LOOPBACK, *, more: str = "") -> Self:
        """Starts a server with its data in `folder`. `more`: lines of its configuration. Raises ServerMissing."""
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
        self.spawn()
        self.wait_until(self._serves)

    def _serves(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), timeout=1.0) as connection:
                connection.sendall(b"srvr")
                return b"Mode:" in connection.recv(4_096)
        except OSError:
            return False


def find_jars() -> Path:
    """The folder of the jars. Raises ServerMissing."""
    what = f"ZooKeeper {VERSION}"
    return java_server.find_jars(what, "BOKI_ZOOKEEPER_JARS", cache=CACHE, pom=POM, checksums=CHECKSUMS)
