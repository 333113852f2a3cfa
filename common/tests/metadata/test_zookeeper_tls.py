"""TLS to a real ZooKeeper, with certificates made here; and files that are no good."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from boki_common import limits
from boki_common.errors import MetadataUnavailable, SettingsError
from boki_common.metadata.store import Versioned
from boki_common.metadata.zookeeper import ZookeeperStore
from boki_common.metadata.zookeeper_settings import ZookeeperSettings
from boki_common.metadata.zookeeper_tls import connector, make_context

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates with")

SERVER = """
secureClientPort={port}
secureClientPortAddress=127.0.0.1
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.location={folder}/server-with-key.pem
ssl.keyStore.type=PEM
ssl.trustStore.location={folder}/ca.pem
ssl.trustStore.type=PEM
"""


class Certificates:
    """An authority, and what it signed; all in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._openssl("req", "-x509", *self._new("ca"), "-out", "ca.pem", "-days", "2")

    def sign(self, name: str, alternative: str) -> None:
        (self.folder / "names").write_text(f"subjectAltName={alternative}\n")
        self._openssl("req", *self._new(name), "-out", f"{name}.csr")
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
        self._openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.pem")

    def settings(self, **changed: Any) -> ZookeeperSettings:
        usual: dict[str, Any] = {"tls": True, "tls_ca_file": self["ca.pem"]}
        mine: dict[str, Any] = {"tls_certificate_file": self["client.pem"], "tls_key_file": self["client.key"]}
        return ZookeeperSettings(**(usual | mine | changed))

    def __getitem__(self, name: str) -> str:
        return str(self.folder / name)

    def _new(self, name: str) -> tuple[str, ...]:
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key")
        return (*key, "-subj", f"/CN={name}")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

    def lock(self, name: str, locked: str) -> None:
        self._openssl("ec", "-in", name, "-aes256", "-passout", "pass:secret", "-out", locked)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    made.sign("server", "IP:127.0.0.1")
    made.sign("client", "DNS:client")
    both = Path(made["server.key"]).read_bytes() + Path(made["server.pem"]).read_bytes()
    Path(made["server-with-key.pem"]).write_bytes(both)
    return made


@pytest.fixture(scope="module")
def secure_hosts(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from itests.support.fixtures import skip_or_fail
    from itests.support.java_server import ServerMissing
    from itests.support.zookeeper import ZookeeperServer

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    more = SERVER.format(port=port, folder=certificates.folder)
    try:
        server = ZookeeperServer.start(tmp_path_factory.mktemp("zookeeper-tls"), more=more)
    except ServerMissing as missing:
        skip_or_fail("zookeeper", str(missing))
    yield f"127.0.0.1:{port}"
    server.stop()


@pytest.fixture
async def opened(secure_hosts: str) -> AsyncIterator[Any]:
    stores: list[ZookeeperStore] = []

    async def open_store(settings: ZookeeperSettings, hosts: str = secure_hosts, **options: Any) -> ZookeeperStore:
        timeouts: dict[str, Any] = {"session_timeout_s": 20.0, "connect_timeout_s": 30.0, "call_timeout_s": 30.0}
        stores.append(ZookeeperStore(hosts, settings=settings, **(timeouts | options)))
        await stores[-1].start()
        return stores[-1]

    yield open_store
    for store in stores:
        await store.close()


@pytest.mark.zookeeper
async def test_a_store_over_tls(opened: Any, secure_hosts: str, certificates: Certificates) -> None:
    store = await opened(certificates.settings(), f"{secure_hosts}/boki")
    large = bytes(range(256)) * (limits.METADATA_VALUE_BYTES // 256)
    await store.create("/a", large)
    assert await store.get("/a") == Versioned(large, 0)
    watch = store.watch("/a")
    await watch.changed()
    assert await store.set("/a", b"small", version=0, creating={"/b": b""}) == 1
    await watch.changed()
    assert await store.children("/") == ["a", "b"]


@pytest.mark.zookeeper
async def test_the_error_names_what_refuses_the_connection(
    opened: Any, secure_hosts: str, certificates: Certificates
) -> None:
    none = {"tls_certificate_file": "", "tls_key_file": ""}
    port = secure_hosts.rpartition(":")[2]
    refused = [
        (certificates.settings(tls_ca_file=""), secure_hosts, "certificate verify failed"),
        (certificates.settings(**none), secure_hosts, "bad certificate|certificate required"),
        (certificates.settings(), f"localhost:{port}", "Hostname mismatch"),
        (ZookeeperSettings(), secure_hosts, "Connection dropped|Connection time-out"),
    ]
    for settings, hosts, why in refused:
        message = ""
        for timeout_s in (0.8, 4.0, 16.0):  # a busy machine may not come as far as to be refused
            with pytest.raises(MetadataUnavailable) as caught:
                await opened(settings, hosts, connect_timeout_s=timeout_s)
            message = str(caught.value)
            if re.search(why, message):
                break
        assert re.search(why, message), message
    await opened(certificates.settings(tls_check_host=False), f"localhost:{port}")


def test_files_that_are_no_good_are_named(certificates: Certificates) -> None:
    certificates.lock("client.key", "locked.key")
    cases = {
        "tls_ca_file": certificates.settings(tls_ca_file=certificates["ca.key"]),
        "tls_ca_file /nowhere": certificates.settings(tls_ca_file="/nowhere"),
        "tls_certificate_file": certificates.settings(tls_key_file=certificates["ca.key"]),
        "tls_key_file .* without a password": certificates.settings(tls_key_file=certificates["locked.key"]),
    }
    for named, settings in cases.items():
        with pytest.raises(SettingsError, match=f"zookeeper.{named}"):
            connector(settings)


def test_only_the_authorities_of_the_file_are_trusted(certificates: Certificates) -> None:
    assert len(make_context(certificates.settings()).get_ca_certs()) == 1


def test_a_file_that_went_bad_is_a_connection_that_fails(certificates: Certificates, tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_bytes(Path(certificates["ca.pem"]).read_bytes())
    connect = connector(certificates.settings(tls_ca_file=str(authority)))
    authority.write_bytes(b"")
    with pytest.raises(OSError, match=r"zookeeper\.tls_ca_file"):
        connect(("127.0.0.1", 1), hostname="127.0.0.1", timeout=1.0)
