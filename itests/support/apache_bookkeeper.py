"""Real Apache BookKeeper for tests: bookies, the shell and programs on the Java client, started from jars.

    apache = ApacheBookkeeper.prepare(zookeeper.hosts, "/test-1", folder)   # raises ServerMissing with the reason
    apache.format()                             # the shell's `initnewcluster`
    first, second, third = apache.start_bookies(3)
    apache.shell("listledgers")                 # what it printed; raises CalledProcessError
    first.kill(); first.start()                 # SIGKILL; the same data and port
    apache.close()

The jars are those in the folder that `BOKI_BOOKKEEPER_JARS` names, else they are brought once into `.cache/bookkeeper` of the
repository (see `java_server`). A bookie is a process of its own with a small heap,
on 127.0.0.1, ready when it is registered. It flushes its journal before it acknowledges, as a bookie has to.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Final, NamedTuple, Self

from kazoo.client import KazooClient

from boki_common.net.lasting_ports import lasting_port
from itests.support import java_server
from itests.support.java_server import JavaServer, ServerMissing, find_java
from itests.support.zookeeper import ROOT

VERSION: Final = "4.18.0"
POM: Final = Path(__file__).parent / "maven" / "bookkeeper.pom.xml"
CHECKSUMS: Final = Path(__file__).parent / "maven" / "bookkeeper.sha256"
"""SHA-256 and path in a Maven repository of each jar; the pom names the same versions."""
CACHE: Final = ROOT / ".cache" / "bookkeeper" / VERSION

START_TIMEOUT_S: Final = 60.0
COMMAND_TIMEOUT_S: Final = 60.0
LOOK_AGAIN_S: Final = 0.5

OPENED_PACKAGES: Final = (
    # Netty reaches into these packages for its buffers, and the journal for its file descriptors.
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
)
COMMON_SETTINGS: Final = """\
allowLoopback=true
advertisedAddress=127.0.0.1
useHostNameAsBookieID=false
httpServerEnabled=false
enableStatistics=false
journalSyncData=true
diskUsageThreshold=0.999
diskUsageWarnThreshold=0.998
diskUsageLwmThreshold=0.998
"""
"""A full disk of the machine is no subject here."""


class Tuning(NamedTuple):
    """How Java and the bookies are set up, beside what they need on one machine anyway."""

    java_flags: tuple[str, ...]
    settings: str


FOR_TESTS: Final = Tuning(
    ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:MaxDirectMemorySize=128m", "-Xmx160m"),
    """\
journalFlushWhenQueueEmpty=true
journalPreAllocSizeMB=4
journalMaxSizeMB=64
journalMaxBackups=1
journalMaxMemorySizeMb=16
entryLogFilePreallocationEnabled=false
skipListSizeLimit=16777216
zkTimeout=4000
""",
)
"""Small and quick to start; the ZooKeeper of tests grants sessions of at most 4 s."""


class ApacheBookie(JavaServer):
    """One bookie process."""

    def __init__(self, command: list[str], port: int, log: Path) -> None:
        self.bookie_id = f"127.0.0.1:{port}"
        super().__init__(f"bookie {self.bookie_id}", command, log, timeout_s=COMMAND_TIMEOUT_S)

    def start(self) -> None:
        """Starts the process and returns at once."""
        self.spawn()


class ApacheBookkeeper:
    """Apache's programs on one chroot of one ZooKeeper."""

    def __init__(self, java: str, jars: Path, hosts: str, chroot: str, folder: Path, tuning: Tuning) -> None:
        self.folder = folder
        self.bookies: list[ApacheBookie] = []
        self.boki_uri = f"zk://{hosts}{chroot}"
        """The same metadata, as our programs name it."""
        self.apache_uri = f"zk+hierarchical://{hosts}{chroot}/ledgers"
        self._tuning = tuning
        self._java = java
        self._jars = jars
        self._zookeeper = KazooClient(hosts)
        self._zookeeper.start()
        self._chroot = chroot
        self._zookeeper.ensure_path(chroot)

    @classmethod
    def prepare(cls, hosts: str, chroot: str, folder: Path, tuning: Tuning = FOR_TESTS) -> Self:
        """Finds Java and the jars. Raises ServerMissing."""
        folder.mkdir(parents=True, exist_ok=True)
        return cls(find_java(), find_jars(), hosts, chroot, folder, tuning)

    def format(self) -> None:
        """Lays out a new cluster in the metadata, with Apache's own command."""
        self.shell("initnewcluster")

    def start_bookies(self, count: int) -> list[ApacheBookie]:
        """Starts further bookies, all at once, and waits until they are registered."""
        made = []
        for _ in range(count):
            number = len(self.bookies)
            port = lasting_port()
            command = self.command("org.apache.bookkeeper.server.Main", "--conf", str(self._settings(number, port)))
            bookie = ApacheBookie(command, port, self.folder / f"bookie-{number}.log")
            self.bookies.append(bookie)
            bookie.start()
            made.append(bookie)
        for bookie in made:
            self.wait_until_registered(bookie)
        return made

    def wait_until_registered(self, bookie: ApacheBookie) -> None:
        self._wait(bookie, registered=True)

    def wait_until_unregistered(self, bookie: ApacheBookie) -> None:
        """After a kill, its registration lasts as long as its session."""
        self._wait(bookie, registered=False)

    def folder_of(self, bookie: ApacheBookie) -> Path:
        """Where a bookie stores."""
        return self.folder / f"bookie-{self.bookies.index(bookie)}"

    def delete_cookie(self, bookie: ApacheBookie) -> None:
        """What `bookieformat -deleteCookie` does in the metadata."""
        self._zookeeper.delete(f"{self._chroot}/ledgers/cookies/{bookie.bookie_id}")

    def shell(self, *arguments: str) -> str:
        """Runs a command of Apache's shell; returns all it printed."""
        settings = self._settings(0, 3181)
        return self.run("org.apache.bookkeeper.bookie.BookieShell", "-conf", str(settings), *arguments)

    def compile(self, source: Path) -> None:
        """Compiles a program against the jars, for `run` and `command`. Raises ServerMissing without a compiler."""
        javac = shutil.which("javac")
        if javac is None:
            raise ServerMissing("no javac on PATH")
        self._checked([javac, "-nowarn", "-d", str(self.folder), "-cp", f"{self._jars}/*", str(source)])

    def run(self, program: str, *arguments: str) -> str:
        return self._checked(self.command(program, *arguments))

    def close(self) -> None:
        for bookie in self.bookies:
            bookie.kill()
        self._zookeeper.stop()
        self._zookeeper.close()

    def command(self, program: str, *arguments: str) -> list[str]:
        """What starts a program of the jars, or one that was compiled against them."""
        return [
            self._java,
            *OPENED_PACKAGES,
            *self._tuning.java_flags,
            "-Dlog4j2.level=INFO",
            *("-cp", f"{self.folder}:{self._jars}/*"),
            program,
            *arguments,
        ]

    def _checked(self, command: list[str]) -> str:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
        if ran.returncode != 0:
            raise RuntimeError(
                f"{command[-3:]} ended with {ran.returncode}:\n{ran.stdout[-3_000:]}\n{ran.stderr[-3_000:]}"
            )
        return ran.stdout + ran.stderr

    def _settings(self, number: int, port: int) -> Path:
        path = self.folder / f"bookie-{number}.conf"
        if not path.exists() or port != 3181:
            data = self.folder / f"bookie-{number}"
            path.write_text(
                f"{COMMON_SETTINGS}{self._tuning.settings}metadataServiceUri={self.apache_uri}\nbookiePort={port}\n"
                f"journalDirectory={data}/journal\nledgerDirectories={data}/ledgers\n"
            )
        return path

    def _wait(self, bookie: ApacheBookie, *, registered: bool) -> None:
        path = f"{self._chroot}/ledgers/available/{bookie.bookie_id}"
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            changed = threading.Event()
            found = self._zookeeper.exists(path, watch=lambda _event, changed=changed: changed.set()) is not None
            if found == registered:
                return
            bookie.check()
            if time.monotonic() > deadline:
                raise ServerMissing(
                    f"expected bookie {bookie.bookie_id} to be {'' if registered else 'un'}registered within "
                    f"{START_TIMEOUT_S:g} s: {bookie.log_tail()}"
                )
            changed.wait(LOOK_AGAIN_S)


def find_jars() -> Path:
    """The folder of the jars. Raises ServerMissing."""
    what = f"Apache BookKeeper {VERSION}"
    return java_server.find_jars(what, "BOKI_BOOKKEEPER_JARS", cache=CACHE, pom=POM, checksums=CHECKSUMS)
