"""A real cluster in Docker, for tests of what is built on LogBooks: extra `boki[containers]`, on testcontainers.

    with BokiCluster() as cluster:                       # ZooKeeper, 3 bookies, 2 sequencers, 2 engines, each a container
        async with boki.connect(cluster.url) as client: ...
        cluster.kill("engine-1"); cluster.start_again("engine-1")
        cluster.pause("bookie-2"); cluster.resume("bookie-2")
        cluster.disconnect("sequencer-1"); cluster.connect_again("sequencer-1")
        cluster.replace("engine-1", "boki:newer")        # by another image, with its data and address

    with BokiCluster(bookies=0, bookkeeper=3) as cluster: ...   # on bookies of Apache BookKeeper
    with Cassandra() as database: database.port      # a node, for tables beside the log

It needs a Docker engine that answers, and the images `boki:latest` and `zookeeper:3.9`. A role counts as started when its `/readyz`
says so: that a port is open proves nothing, since Docker itself listens there. Engines are reached at ports of this machine that
were free, which they send to SDKs as their outside addresses. Such clusters ask for no token: only this machine reaches them.

All that is made carries a label with its owner. What a killed test run left is removed by the next one, and nothing that a living
process made: testcontainers' own reaper is an image that cannot be pulled everywhere, so it is off unless the environment says
otherwise. Everything here blocks.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")

import docker
from docker.errors import DockerException, ImageNotFound, NotFound
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from boki_common.errors import BokiError

IMAGE: Final = "boki:latest"
ZOOKEEPER_IMAGE: Final = "zookeeper:3.9"
BOOKKEEPER_IMAGE: Final = "apache/bookkeeper:4.17.2"
CASSANDRA_IMAGE: Final = "cassandra:5.0"
BOOKIE_SERVES: Final = re.compile(r"Started component \{?(component=)?bookie-server")
"""As Apache's bookies of 4.17 and of 4.18 say it."""
DOCKER_SOCKET: Final = "unix:///var/run/docker.sock"
"""Where Docker's client looks when nothing says where."""
LABEL: Final = "dev.boki.testing.owner"
LOOPBACK: Final = "127.0.0.1"
READY_S: Final = 180.0
PAUSE_S: Final = 0.2
STOP_S: Final = 20
OUTSIDE_PORT: Final = 7140
DATA: Final = "/var/lib/boki"
BALLAST: Final = f"{DATA}/ballast"


class ClusterNotReady(BokiError):
    """A container did not become ready, or ended; the message has the end of its log."""


class ZooKeeper(DockerContainer):
    """One ZooKeeper server, called `zookeeper` in its network."""

    def __init__(self, network: Network, image: str = ZOOKEEPER_IMAGE) -> None:
        super().__init__(image)
        self.with_network(network).with_network_aliases("zookeeper")
        for name, value in (("ZOO_TICK_TIME", "200"), ("ZOO_MAX_CLIENT_CNXNS", "0"), ("JVMFLAGS", "-Xmx128m")):
            self.with_env(name, value)
        self.with_kwargs(labels={LABEL: owner()})
        self.waiting_for(LogMessageWaitStrategy("binding to port").with_startup_timeout(int(READY_S)))


class BookKeeper(DockerContainer):
    """One bookie of Apache BookKeeper, called `name` in its network, where a ZooKeeper is that has its metadata.

    The first of a cluster lays it out: start it, and wait for it, before the others. Boki's roles are told
    `BOKI_METADATA=zk://zookeeper:2181`.
    """

    def __init__(self, name: str, network: Network, image: str = BOOKKEEPER_IMAGE) -> None:
        super().__init__(image)
        self.with_network(network).with_network_aliases(name).with_command("bookie")
        settings = {
            "BK_metadataServiceUri": "zk+hierarchical://zookeeper:2181/ledgers",
            "BK_zkServers": "zookeeper:2181",
            "BK_zkLedgersRootPath": "/ledgers",
            "BK_advertisedAddress": name,
            "BK_useHostNameAsBookieID": "true",
            "BK_journalPreAllocSizeMB": "4",
            "BK_journalMaxSizeMB": "64",
            "BK_skipListSizeLimit": str(16 << 20),
            "BK_diskUsageThreshold": "0.99",
            "BK_diskUsageWarnThreshold": "0.98",
            "BK_diskUsageLwmThreshold": "0.97",
            "BOOKIE_MEM_OPTS": "-Xmx160m -XX:MaxDirectMemorySize=128m",
        }
        for variable, value in settings.items():
            self.with_env(variable, value)
        self.with_kwargs(labels={LABEL: owner()}, hostname=name)
        self.waiting_for(LogMessageWaitStrategy(BOOKIE_SERVES).with_startup_timeout(int(READY_S)))


class Cassandra(DockerContainer):
    """One node of Apache Cassandra, for tables of a database beside the log: `with Cassandra() as database: database.port`.

    Args:
        network: where it is called `cassandra`; None: only this machine reaches it.

    Attributes:
        port: of CQL, on 127.0.0.1.
    """

    def __init__(self, network: Network | None = None, image: str = CASSANDRA_IMAGE) -> None:
        super().__init__(image)
        self.port: Final = free_port()
        self.ports["9042/tcp"] = (LOOPBACK, self.port)  # type: ignore[assignment] # docker-py takes an address too
        if network is not None:
            self.with_network(network).with_network_aliases("cassandra")
        for name, value in (
            ("MAX_HEAP_SIZE", "512M"),
            ("HEAP_NEWSIZE", "128M"),
            ("JVM_EXTRA_OPTS", "-Dcassandra.ring_delay_ms=0 -Dcassandra.skip_wait_for_gossip_to_settle=0"),
        ):
            self.with_env(name, value)
        self.with_kwargs(labels={LABEL: owner()})
        wait = LogMessageWaitStrategy("Starting listening for CQL clients")
        self.waiting_for(wait.with_startup_timeout(int(READY_S)))


class Role(DockerContainer):
    """One role of Boki.

    Args:
        name: as `bookie-1`: its kind, and its name in the network.
        port: of this machine, where an engine is reached; 0: none.
        volume: of Docker, where a bookie keeps its data; empty: one that goes with the container.
    """

    def __init__(
        self, name: str, network: Network, settings: Mapping[str, str], *, port: int = 0, image: str, volume: str = ""
    ) -> None:
        super().__init__(image)
        kind = name.partition("-")[0]
        listen = {"bookie": 3181, "sequencer": 7041, "controller": 7042, "engine": 7040}[kind]
        advertise = "BOKI_BOOKIE_HOST" if kind == "bookie" else f"BOKI_{kind.upper()}_ADVERTISE"
        settings_of_role = {
            "BOKI_METADATA": "zk://zookeeper:2181/boki",
            "BOKI_INSECURE": "true",
            "BOKI_LISTEN": f"0.0.0.0:{listen}",
            advertise: name,
        }
        if port:
            settings_of_role["BOKI_ENGINE_OUTSIDE_LISTEN"] = f"0.0.0.0:{OUTSIDE_PORT}"
            settings_of_role["BOKI_ENGINE_OUTSIDE_ADVERTISE"] = f"{LOOPBACK}:{port}"
            self.ports[f"{OUTSIDE_PORT}/tcp"] = (LOOPBACK, port)  # type: ignore[assignment] # docker-py takes an address too
        for variable, value in {**settings_of_role, **settings}.items():
            self.with_env(variable, value)
        if volume:
            self.with_volume_mapping(volume, DATA, "rw")
        self.with_command(kind).with_network(network).with_network_aliases(name)
        # Whether it is ready is asked by `wait`; the image's own check would ask all the time.
        self.with_kwargs(labels={LABEL: owner()}, hostname=name, healthcheck={"test": ["NONE"]})


class BokiCluster:
    """See the module. Use as a context manager.

    Args:
        bookies, sequencers, engines, controllers: how many of each. bookkeeper: bookies of Apache, beside ours or in their place.
        settings: `BOKI_*` variables for all roles.
        image: of the roles.
        disks: sizes in bytes of bookies' disks, by name, where they have to be small; such a disk is memory, and empty after a stop.
    """

    def __init__(
        self,
        *,
        bookies: int = 3,
        sequencers: int = 2,
        engines: int = 2,
        controllers: int = 1,
        bookkeeper: int = 0,
        settings: Mapping[str, str] | None = None,
        image: str = IMAGE,
        disks: Mapping[str, int] | None = None,
    ) -> None:
        counts = {"bookie": bookies, "sequencer": sequencers, "controller": controllers, "engine": engines}
        self._names = [f"{kind}-{number}" for kind, count in counts.items() for number in range(1, count + 1)]
        self._ports = {name: free_port() for name in self._names if name.startswith("engine")}
        self._apache = [f"bookkeeper-{number}" for number in range(1, bookkeeper + 1)]
        metadata = {"BOKI_METADATA": "zk://zookeeper:2181"} if bookkeeper else {}
        self._settings = {**metadata, **(settings or {})}
        self._image = image
        self._disks = dict(disks or {})
        self._volumes: dict[str, Any] = {}
        self._network: Network | None = None
        self._zookeeper: ZooKeeper | None = None
        self._roles: dict[str, DockerContainer] = {}

    @property
    def url(self) -> str:
        """Where SDKs of this machine connect: all engines."""
        return "boki://" + ",".join(f"{LOOPBACK}:{port}" for port in self._ports.values())

    @property
    def names(self) -> list[str]:
        """Of all roles, bookies first."""
        return list(self._names)

    @property
    def addresses(self) -> dict[str, str]:
        """Of all that run, by name: in the cluster's own network, which only this machine reaches, and only on Linux."""
        network = self._docker_network().name
        started: dict[str, DockerContainer] = dict(self._roles)
        if self._zookeeper is not None:
            started["zookeeper"] = self._zookeeper
        found = {}
        for name, container in started.items():
            wrapped: Any = container.get_wrapped_container()
            wrapped.reload()
            found[name] = str(wrapped.attrs["NetworkSettings"]["Networks"][network]["IPAddress"])
        return found

    def start(self) -> None:
        """Starts everything, and waits until it is ready. Raises ClusterNotReady."""
        sweep(docker.from_env())
        self._network = network = Network(docker_network_kw={"labels": {LABEL: owner()}})
        network.create()
        self._zookeeper = ZooKeeper(network)
        self._zookeeper.start()
        for name in self._apache:
            self._roles[name] = BookKeeper(name, network)
            self._roles[name].start()
        for name in self._names:
            if name.startswith("bookie"):
                self._volumes[name] = _volume(self._disks.get(name, 0))
            self._start(name, self._image)
        self.wait(*self._names)

    def replace(self, name: str, image: str, *, settings: Mapping[str, str] | None = None) -> None:
        """Ends a role as it should, and starts it from another image, with its data and address.

        Args:
            settings: `BOKI_*` variables from now on for this and later replacements; None: as they were.

        Raises:
            ClusterNotReady: it does not come up.
        """
        if settings is not None:
            self._settings = dict(settings)
        self.end(name)
        self._roles.pop(name).stop(force=True, delete_volume=False)
        self._start(name, image)
        self.wait(name)

    def stop(self) -> None:
        """Removes everything, volumes too. Idempotent."""
        started = [*self._roles.values(), *([self._zookeeper] if self._zookeeper else [])]
        self._roles, self._zookeeper = {}, None
        for container in started:
            container.stop(force=True, delete_volume=True)
        network, self._network = self._network, None
        if network is not None:
            network.remove()
        while self._volumes:
            self._volumes.popitem()[1].remove(force=True)

    def wait(self, *names: str, timeout_s: float = READY_S) -> None:
        """Waits until these roles are ready. Raises ClusterNotReady."""
        deadline = time.monotonic() + timeout_s
        for name in names:
            container = self._container(name)
            while True:
                container.reload()
                code, output = container.exec_run(["boki", "ready"]) if container.status == "running" else (1, b"")
                if code == 0:
                    break
                if time.monotonic() > deadline or container.status == "exited":
                    log = container.logs(tail=25).decode(errors="replace")
                    raise ClusterNotReady(
                        f"expected {name} ready within {timeout_s:g} s, found it {container.status}: "
                        f"{output.decode(errors='replace').strip()}\n{log}",
                        role=name,
                    )
                time.sleep(PAUSE_S)

    def kill(self, name: str) -> None:
        """SIGKILL; returns when the container is not running any more."""
        container = self._container(name)
        container.kill()
        container.wait()

    def end(self, name: str) -> None:
        """SIGTERM, as `docker stop`: the role ends as it should."""
        self._container(name).stop(timeout=STOP_S)

    def start_again(self, name: str) -> None:
        """The same container, with its data and address; waits until it is ready. Raises ClusterNotReady."""
        self._container(name).start()
        self.wait(name)

    def pause(self, name: str) -> None:
        """Its processes keep their connections and say nothing."""
        self._container(name).pause()

    def resume(self, name: str) -> None:
        self._container(name).unpause()

    def disconnect(self, name: str) -> None:
        """Takes it out of the network: nobody hears anything of it."""
        self._docker_network().disconnect(self._container(name))

    def connect_again(self, name: str) -> None:
        self._docker_network().connect(self._container(name), aliases=[name])

    def limit_memory(self, name: str, more: int) -> None:
        """From now on a role may take so many bytes more than it has; the kernel kills what goes beyond.

        That lasts for the container's life; `replace` ends it.
        """
        container = self._container(name)
        limit = container.stats(stream=False)["memory_stats"]["usage"] + more
        container.update(mem_limit=limit, memswap_limit=limit)

    def fill_disk(self, name: str) -> None:
        """Leaves a bookie no byte of its disk, which is one of `disks`."""
        # The largest parts first: what another process writes meanwhile leaves gaps.
        script = f"for size in 64M 8M 1M 64K 4K; do while dd if=/dev/zero bs=$size count=1 >> {BALLAST} 2>/dev/null; do :; done; done; true"
        self._in(name, script)

    def empty_disk(self, name: str) -> None:
        """Takes away what `fill_disk` put there."""
        self._in(name, f"rm -f {BALLAST}")

    def run(self, name: str, *command: str) -> str:
        """What a command in a role's container prints, such as `boki status --check`. Raises ClusterNotReady when it fails."""
        code, output = self._container(name).exec_run(list(command))
        printed = str(output.decode(errors="replace"))
        if code:
            raise ClusterNotReady(
                f"expected {' '.join(command)} to succeed in {name}, found exit code {code}: {printed}", role=name
            )
        return printed

    def log(self, name: str) -> str:
        """All that a role logged."""
        return str(self._container(name).logs().decode(errors="replace"))

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self, name: str, image: str) -> None:
        assert self._network is not None, "started"
        volume = self._volumes[name].name if name in self._volumes else ""
        port = self._ports.get(name, 0)
        role = Role(name, self._network, self._settings, port=port, image=image, volume=volume)
        self._roles[name] = role
        role.start()

    def _in(self, name: str, script: str) -> None:
        self.run(name, "sh", "-c", script)

    def _container(self, name: str) -> Any:
        return self._roles[name].get_wrapped_container()

    def _docker_network(self) -> Any:
        assert self._network is not None, "started"
        return docker.from_env().networks.get(self._network.name)


def unavailable(*images: str) -> str:
    """Why this machine cannot start such a cluster, as a sentence that says what to do; "" when it can.

    Args:
        images: that are needed; none: those of a cluster.
    """
    socket = os.environ.get("DOCKER_HOST", DOCKER_SOCKET)
    if socket.startswith("unix://") and not Path(socket.removeprefix("unix://")).exists():
        # Not asked of Docker's client: it leaves the socket open that it could not connect.
        return f"no Docker engine answers (there is no {socket}): start one, or set DOCKER_HOST"
    try:
        client = docker.from_env()
    except DockerException as error:
        return f"no Docker engine answers ({error}): start one, or set DOCKER_HOST"
    try:
        return next((why for name in images or (IMAGE, ZOOKEEPER_IMAGE) if (why := _lacking(client, name))), "")
    finally:
        client.close()


def _lacking(client: docker.DockerClient, image: str) -> str:
    try:
        client.images.get(image)
    except ImageNotFound:
        return f"the image {image} is not here: docker pull it, or in Boki's repository make image IMAGES=--all"
    return ""


def owner() -> str:
    """This process, distinct from a later one of its number: pid and when it began."""
    return f"{os.getpid()}-{_began(os.getpid())}"


def sweep(client: docker.DockerClient) -> None:
    """Removes containers, networks and volumes whose process is gone, as after a test run that was killed."""
    mine: dict[str, str | list[str] | bool] = {"label": LABEL}
    for container in client.containers.list(all=True, filters=mine):
        if _is_gone(container.labels.get(LABEL, "")):
            _unless_gone(lambda container=container: container.remove(force=True, v=True))
    for network in client.networks.list(filters=mine):
        if _is_gone((network.attrs or {}).get("Labels", {}).get(LABEL, "")):
            _unless_gone(network.remove)
    for volume in client.volumes.list(filters=mine):
        if _is_gone(((volume.attrs or {}).get("Labels") or {}).get(LABEL, "")):
            _unless_gone(volume.remove)


def _volume(size: int) -> Any:
    """A volume of Docker. `size`: bytes, of memory; 0: on the disk, as large as that."""
    options = {"type": "tmpfs", "device": "tmpfs", "o": f"size={size},uid=10001,mode=0700"} if size else {}
    return docker.from_env().volumes.create(labels={LABEL: owner()}, driver_opts=options)


def free_port() -> int:
    """A port of this machine that was free just now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _unless_gone(remove: Any) -> None:
    try:
        remove()
    except NotFound:
        pass  # another sweep was quicker


def _is_gone(label: str) -> bool:
    pid, _, began = label.partition("-")
    return not pid.isdigit() or _began(int(pid)) != began


def _began(pid: int) -> str:
    """When a process of this machine began, in the kernel's ticks; "" without /proc, or when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
