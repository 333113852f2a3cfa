"""A real Apache Cassandra of one node for tests, started from jars: no Docker, no installation.

    server = CassandraServer.start(folder)      # raises ServerMissing with the reason
    server.port                                 # of CQL, on 127.0.0.1
    server.pause(), server.resume()             # SIGSTOP, SIGCONT
    server.kill(), server.restart()             # SIGKILL; the same data and port
    server.restart(ahead_s=3_600)               # with a wall clock that is an hour ahead, by libfaketime
    server.stop()

    with shared(folder) as server: ...          # the same for all processes that name this folder

The jars are those in the folder that `BOKI_CASSANDRA_JARS` names, else they are brought once into `.cache/cassandra` of the repository
(see `java_server`). The node has a heap of 512 MB, and serves after about ten seconds of a processor, so one is shared by a whole run. It
flushes its commit log before it acknowledges (`commitlog_sync: batch`), as a log does, by default.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, Self

from boki_common.net.lasting_ports import lasting_port
from itests.support import java_server
from itests.support.java_server import JavaServer, ServerMissing, find_java
from itests.support.zookeeper import LOOPBACK, ROOT

VERSION: Final = "5.0.9"
POM: Final = Path(__file__).parent / "maven" / "cassandra.pom.xml"
CHECKSUMS: Final = Path(__file__).parent / "maven" / "cassandra.sha256"
"""SHA-256 and path in a Maven repository of each jar; the pom names the same versions."""
CACHE: Final = ROOT / ".cache" / "cassandra" / VERSION

START_TIMEOUT_S: Final = 150.0
LOOK_AGAIN_S: Final = 0.2
OPTIONS_FRAME: Final = bytes.fromhex("040000000500000000")
SUPPORTED: Final = 0x06

FOR_TESTS: Final = ("-XX:TieredStopAtLevel=1", "-Xms128m", "-Xmx512m")
FOR_BENCHMARKS: Final = ("-Xms512m", "-Xmx512m")
"""Compiled as far as Java can, which takes longer to start."""

_UNNAMED: Final = "=ALL-UNNAMED"
_EXPORTS: Final = (
    "java.base/jdk.internal.misc",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "java.base/java.lang.ref",
    "jdk.unsupported/sun.misc",
    "jdk.attach/sun.tools.attach",
)
_OPENS: Final = (
    "java.base/java.lang.module",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.util.jar",
    "jdk.management/com.sun.management.internal",
    "java.base/sun.nio.ch",
    "java.base/java.io",
    "java.base/java.lang.reflect",
    "java.base/java.lang",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/java.nio",
)


class CassandraServer(JavaServer):
    """One node. Its data and port outlive `kill` and `stop`."""

    def __init__(self, java: str, jars: Path, folder: Path, flags: tuple[str, ...], sync: str) -> None:
        self.folder = folder
        self.port = lasting_port()
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__("Cassandra", _command(java, jars, folder, flags), folder / "log", timeout_s=START_TIMEOUT_S)
        (folder / "cassandra.yaml").write_text(_settings(folder, self.port, lasting_port(), sync))
        (folder / "logback.xml").write_text(_LOGBACK)

    @classmethod
    def start(cls, folder: Path, *, flags: tuple[str, ...] = FOR_TESTS, sync: str = "batch") -> Self:
        """Starts a node with its data in `folder`. Raises ServerMissing."""
        server = cls(find_java(), find_jars(), folder.absolute(), flags, sync)
        server.restart()
        return server

    def restart(self, *, ahead_s: int = 0) -> None:
        """Starts the process, after `kill` or `stop` on the same data and port. Returns when it serves.

        Args:
            ahead_s: of its wall clock. Needs `find_faketime`.
        """
        self.spawn(_ahead(ahead_s) if ahead_s else None)
        self.wait_until(self._serves)

    def _serves(self) -> bool:
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=1.0) as connection:
                connection.sendall(OPTIONS_FRAME)
                answer = connection.recv(9)
                return len(answer) == 9 and answer[4] == SUPPORTED
        except OSError:
            return False


@contextmanager
def shared(folder: Path) -> Iterator[int]:
    """The port of a node of all who name this folder; the first starts it, and ends it after the last. Raises ServerMissing.

    Locks of the system tell who is there, and go with a process that dies: `owner` is locked by the process that started the node, `users`
    by all that use it, and `lock` while one begins or ends to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "users").open("w") as users, (folder / "owner").open("w") as owner:
        server = None
        with _locked(folder):
            fcntl.flock(users, fcntl.LOCK_SH)
            if _take(owner):  # a node whose owner died may run still, on a folder of its own
                server = CassandraServer.start(folder / f"node-{os.getpid()}")
                (folder / "port").write_text(str(server.port))
            port = int((folder / "port").read_text())
        try:
            yield port
        finally:
            fcntl.flock(users, fcntl.LOCK_UN)
            if server is not None:
                _end_unused(folder, users, owner, server)


def _end_unused(folder: Path, users: IO[str], owner: IO[str], server: CassandraServer) -> None:
    """Ends a node once no process uses it, or after a time in which no test should last. None begins to use it meanwhile."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        with _locked(folder):
            if _take(users) or time.monotonic() > deadline:
                server.kill()
                fcntl.flock(users, fcntl.LOCK_UN)
                fcntl.flock(owner, fcntl.LOCK_UN)
                return
        time.sleep(LOOK_AGAIN_S)


def _take(file: IO[str]) -> bool:
    """Lock a file for this process alone, if no other has."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def find_faketime() -> Path:
    """The library that gives a process another wall clock. Raises ServerMissing."""
    for folder in ("/usr/lib", "/usr/local/lib"):
        for found in sorted(Path(folder).glob("**/faketime/libfaketimeMT.so.1")):
            return found
    raise ServerMissing("no libfaketime; on Debian and Ubuntu: apt-get install libfaketime")


def _ahead(seconds: int) -> dict[str, str]:
    """Environment by which a process's wall clock is ahead, and no other clock: Java waits by that one."""
    ours = {
        "LD_PRELOAD": str(find_faketime()),
        "FAKETIME": f"{seconds:+d}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
    }
    return {**os.environ, **ours}


def find_jars() -> Path:
    """The folder of the jars. Raises ServerMissing."""
    what = f"Cassandra {VERSION}"
    return java_server.find_jars(what, "BOKI_CASSANDRA_JARS", cache=CACHE, pom=POM, checksums=CHECKSUMS)


def _command(java: str, jars: Path, folder: Path, flags: tuple[str, ...]) -> list[str]:
    agents = sorted(jars.glob("jamm-*.jar"))
    if not agents:
        raise ServerMissing(f"expected the jars of Cassandra {VERSION} in {jars}, found no jamm-*.jar")
    data = folder / "data"
    return [
        java,
        f"-javaagent:{agents[0]}",
        *(part for package in _EXPORTS for part in ("--add-exports", package + _UNNAMED)),
        *(part for package in _OPENS for part in ("--add-opens", package + _UNNAMED)),
        *("-Xss512k", "-XX:+UseSerialGC", *flags),
        "-Djdk.attach.allowAttachSelf=true",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Djava.net.preferIPv4Stack=true",
        f"-Dcassandra.config=file://{folder / 'cassandra.yaml'}",
        f"-Dlogback.configurationFile={folder / 'logback.xml'}",
        f"-Dcassandra.storagedir={data}",
        f"-Dcassandra.logdir={data}",
        f"-Dcassandra.jmx.local.port={lasting_port()}",
        "-Dcassandra-foreground=yes",
        "-Dcassandra.ring_delay_ms=0",
        "-Dcassandra.skip_wait_for_gossip_to_settle=0",
        *("-cp", f"{folder}:{jars}/*"),
        "org.apache.cassandra.service.CassandraDaemon",
    ]


def _settings(folder: Path, port: int, storage_port: int, sync: str) -> str:
    data = folder / "data"
    period = "\ncommitlog_sync_period: 10000ms" if sync == "periodic" else ""
    return f"""\
cluster_name: test
num_tokens: 1
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: SimpleSnitch
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: "{LOOPBACK}:{storage_port}"
listen_address: {LOOPBACK}
storage_port: {storage_port}
rpc_address: {LOOPBACK}
native_transport_port: {port}
data_file_directories: ["{data}/sstables"]
commitlog_directory: {data}/commitlog
saved_caches_directory: {data}/saved_caches
hints_directory: {data}/hints
cdc_raw_directory: {data}/cdc
commitlog_sync: {sync}{period}
commitlog_segment_size: 8MiB
commitlog_total_space: 256MiB
concurrent_reads: 8
concurrent_writes: 8
concurrent_counter_writes: 4
memtable_heap_space: 64MiB
memtable_offheap_space: 64MiB
file_cache_enabled: false
auto_snapshot: false
authenticator: AllowAllAuthenticator
authorizer: AllowAllAuthorizer
"""


_LOGBACK: Final = """\
<configuration>
  <appender name="S" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{HH:mm:ss.SSS} %-5level %logger{0} %msg%n</pattern></encoder>
  </appender>
  <logger name="ROOT" level="WARN"><appender-ref ref="S"/></logger>
</configuration>
"""
