"""Where the jars of programs that tests start come from, and what is said when they cannot be had."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import ModuleType

import pytest

from itests.support import apache_bookkeeper, cassandra, maven_jars, zookeeper
from itests.support.java_server import ServerMissing
from itests.support.maven_jars import JarsMissing


def test_the_pom_and_the_checksums_name_the_same_versions() -> None:
    pom = zookeeper.POM.read_text()
    lines = [line.split() for line in zookeeper.CHECKSUMS.read_text().splitlines()]
    assert all(len(checksum) == 64 for checksum, _path in lines)
    for artifact in ("zookeeper", "metrics-core", "snappy-java", "slf4j-simple"):
        version = next(path.split("/")[-2] for _checksum, path in lines if path.split("/")[-3] == artifact)
        assert f"<artifactId>{artifact}</artifactId>" in pom
        assert f"<version>{version}</version>" in pom
    assert f"/{zookeeper.VERSION}/" in lines[0][1]


def test_a_download_checks_what_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = {"g/one/1/one-1.jar": b"one", "g/two/2/two-2.jar": b"two"}
    checksums = tmp_path / "checksums"
    checksums.write_text("".join(f"{hashlib.sha256(data).hexdigest()}  {path}\n" for path, data in jars.items()))
    monkeypatch.setenv("BOKI_MAVEN_REPOSITORY", (tmp_path / "repository").as_uri() + "/")
    for path, data in jars.items():
        target = tmp_path / "repository" / path
        target.parent.mkdir(parents=True)
        target.write_bytes(data)
    (tmp_path / "jars").mkdir()
    maven_jars.download(tmp_path / "jars", checksums)
    assert {path.name: path.read_bytes() for path in (tmp_path / "jars").iterdir()} == {
        "one-1.jar": b"one",
        "two-2.jar": b"two",
    }
    (tmp_path / "repository/g/two/2/two-2.jar").write_bytes(b"other")
    with pytest.raises(JarsMissing, match="expected SHA-256"):
        maven_jars.download(tmp_path / "jars", checksums)


def test_the_mirror_of_the_settings(tmp_path: Path) -> None:
    settings = tmp_path / "settings.xml"
    assert maven_jars.mirror_of_settings(settings) is None
    settings.write_text("<settings/>")
    assert maven_jars.mirror_of_settings(settings) is None
    settings.write_text(
        '<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0"><mirrors><mirror><id>m</id>'
        "<url> https://mirror.example/maven </url></mirror></mirrors></settings>"
    )
    assert maven_jars.mirror_of_settings(settings) == "https://mirror.example/maven"


@pytest.mark.parametrize("server", [zookeeper, apache_bookkeeper, cassandra], ids=lambda one: one.__name__)
def test_without_maven_and_repository_the_reason_is_given(
    server: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("MAVEN_REPOSITORY", "ZOOKEEPER_JARS", "BOOKKEEPER_JARS", "CASSANDRA_JARS"):
        monkeypatch.delenv(f"BOKI_{name}", raising=False)
    monkeypatch.setattr(server, "CACHE", tmp_path / "cache" / "1")
    with pytest.raises(ServerMissing, match="no mvn on PATH; no Maven repository is named by BOKI_MAVEN_REPOSITORY"):
        server.find_jars()
    assert not (tmp_path / "cache" / "1").exists()


@pytest.mark.parametrize(
    ("server", "folder"),
    [(apache_bookkeeper, "org/apache/bookkeeper/bookkeeper-server"), (cassandra, "org/apache/cassandra/cassandra-all")],
)
def test_a_pom_and_its_checksums_name_the_same_version(server: ModuleType, folder: str) -> None:
    assert f"<version>{server.VERSION}</version>" in server.POM.read_text()
    paths = [line.split()[1] for line in server.CHECKSUMS.read_text().splitlines()]
    assert any(path.startswith(f"{folder}/{server.VERSION}/") for path in paths)
    assert len({Path(path).name for path in paths}) == len(paths)


def test_a_folder_of_jars_may_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOKI_BOOKKEEPER_JARS", str(tmp_path))
    assert apache_bookkeeper.find_jars() == tmp_path
